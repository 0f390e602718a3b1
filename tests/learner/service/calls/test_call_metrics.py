"""Tests the metrics of calls, sessions and chunks."""

from __future__ import annotations

import numpy as np
from rollcast.enums import HoldReason
from rollcast.trajectories import encode_chunk

from tests.learner.service.calls.harness import Actor, Learner, eventually, failure, running
from tests.learner.service.calls.samples import make_chunk, make_options, make_policy, make_spec

PREFIX = "rollcast_learner_"


def handled(learner: Learner, kind: str, service: str, method: str, code: str) -> float:
    """Returns how many calls of a method ended with a code."""
    labels = {"grpc_type": kind, "grpc_service": f"rollcast.v1.{service}", "grpc_method": method, "grpc_code": code}
    return learner.metric("grpc_server_handled_total", **labels)


def messages(learner: Learner, direction: str, kind: str, service: str, method: str) -> float:
    """Returns how many messages a method received or sent."""
    labels = {"grpc_type": kind, "grpc_service": f"rollcast.v1.{service}", "grpc_method": method}
    return learner.metric(f"grpc_server_msg_{direction}_total", **labels)


async def test_unary_calls_count_with_their_codes() -> None:
    """Unary calls are counted by code with a duration, and errors by reason."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        assert (await failure(actor.open(protocol_revision=0))).reason == "PROTOCOL_TOO_OLD"
        assert handled(learner, "unary", "SessionService", "OpenSession", "OK") == 1
        # A refusal is counted when its call returns, after it was sent to the client.
        await eventually(lambda: handled(learner, "unary", "SessionService", "OpenSession", "FailedPrecondition") == 1)
        labels = {"grpc_service": "rollcast.v1.SessionService", "grpc_method": "OpenSession", "grpc_type": "unary"}
        assert learner.metric("grpc_server_started_total", **labels) == 2
        assert learner.metric("grpc_server_handling_seconds_count", **labels) == 2
        assert messages(learner, "received", "unary", "SessionService", "OpenSession") == 2
        assert messages(learner, "sent", "unary", "SessionService", "OpenSession") == 1
        assert learner.metric(f"{PREFIX}errors_total", reason="protocol_too_old") == 1


async def test_streams_count_their_messages_and_ends() -> None:
    """An upload counts its messages, and ends with OK or cancelled."""
    async with running() as learner:
        port = learner.server.port
        async with Actor(port, "polite") as actor:
            upload = await actor.join()
            await upload.deliver(*(make_chunk(2, sequence=sequence) for sequence in (1, 2, 3)))
            await upload.finish()
            await eventually(lambda: handled(learner, "bidi_stream", "TrajectoryService", "Upload", "OK") == 1)
            assert messages(learner, "received", "bidi_stream", "TrajectoryService", "Upload") == 4
            assert messages(learner, "sent", "bidi_stream", "TrajectoryService", "Upload") >= 2
        async with Actor(port, "rude") as actor:
            upload = await actor.join()
            upload.call.cancel()
            await eventually(lambda: handled(learner, "bidi_stream", "TrajectoryService", "Upload", "Canceled") == 1)


async def test_sessions_count_by_outcome() -> None:
    """New, resumed, excess and refused sessions are each counted once."""
    async with running(make_options(max_sessions=1)) as learner:
        port = learner.server.port

        def opened(outcome: str) -> float:
            return learner.metric(f"{PREFIX}sessions_opened_total", outcome=outcome)

        async with Actor(port, "a") as actor, Actor(port, "b") as other:
            response = await actor.open()
            await actor.declare()
            assert (await failure(other.open())).reason == "TOO_MANY_SESSIONS"
            assert (await failure(actor.open(instance_id="none"))).reason == "BAD_REQUEST"
            resume = {"session_id": response.session_id, "epoch": 1, "generation": 1}
            await actor.open(resume=resume)
            assert (await failure(other.open(resume=resume))).reason == "SESSION_FENCED"
            assert (await failure(actor.declare(make_spec(size=9)))).reason == "SPEC_MISMATCH"
            await actor.close()
        outcomes = {outcome: opened(outcome) for outcome in ("ok", "full", "refused", "resumed", "fenced")}
        assert outcomes == {"ok": 1, "full": 1, "refused": 1, "resumed": 1, "fenced": 1}
        assert learner.metric(f"{PREFIX}declarations_total", outcome="ok") == 1
        assert learner.metric(f"{PREFIX}declarations_total", outcome="refused") == 1
        assert learner.metric(f"{PREFIX}sessions_closed_total") == 1


async def test_chunks_count_by_what_became_of_them() -> None:
    """Queued, refused and duplicate chunks are counted with sizes and times."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        good = make_chunk(3, sequence=1)
        bad = make_chunk(2, sequence=2)
        bad.columns["obs/state"] = np.full_like(bad.columns["obs/state"], np.nan)
        for chunk in (good, bad, good):
            await upload.send(chunk)
        await eventually(lambda: learner.metric(f"{PREFIX}chunks_duplicate_total") == 1)
        size = encode_chunk(good).ByteSize()
        assert learner.metric(f"{PREFIX}chunks_received_total") == 3
        assert learner.metric(f"{PREFIX}chunks_rejected_total", reason="not_finite") == 1
        assert learner.metric(f"{PREFIX}received_wire_bytes_total") >= 2 * size
        assert learner.metric(f"{PREFIX}received_decoded_bytes_total") > 0
        assert learner.metric(f"{PREFIX}chunk_bytes_bucket", le="4096.0") == 3
        assert learner.metric(f"{PREFIX}ack_seconds_count") == 2


async def test_an_update_holds_until_its_version_is_there() -> None:
    """An update holds actors until its version is published."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.join()
        learner.pace(hold=HoldReason.UPDATING, until_version=1, ahead_limit_steps=100)
        await eventually(lambda: learner.metric(f"{PREFIX}held", reason="updating") == 1)
        learner.publish(make_policy(1))
        await eventually(lambda: learner.metric(f"{PREFIX}held", reason="updating") == 0)
        held_seconds = learner.metric(f"{PREFIX}held_seconds_total", reason="updating")
        assert held_seconds > 0
        learner.pace(hold=HoldReason.UPDATING, until_version=1, ahead_limit_steps=99)
        await eventually(lambda: learner.behavior.queue.pace.ahead_limit_steps == 99)
        assert learner.metric(f"{PREFIX}held_seconds_total", reason="updating") == held_seconds
