"""Tests that actors with faults of form are shut out, over real gRPC, and that nothing else shuts an actor out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import grpc
import numpy as np
import pytest
from rollcast.auth import Role
from rollcast.limits import MAX_REPORTS
from rollcast.v1 import policy_pb2, session_pb2, trajectory_pb2
from structlog.testing import capture_logs

from learner.service.identity.access import Access
from learner.service.identity.audit import Audit
from learner.service.identity.setup import Identity
from learner.service.ingest.quarantine import MAX_FAULTS, SHORTEST_SECONDS
from tests.learner.service.calls.harness import Actor, Learner, ask, failure, running, status_of_run
from tests.learner.service.calls.samples import make_chunk
from tests.learner.service.identity.certificates import Folder
from tests.learner.service.identity.test_audit import lines_in

MANY_BOOKS = [session_pb2.ActorBooks()] * (MAX_REPORTS + 1)


async def _malformed_chunks(actor: Actor) -> None:
    """Sends chunks with an unknown column until the place is shut out."""
    for _ in range(MAX_FAULTS):
        upload = await actor.opened_upload()
        await upload.send_message(trajectory_pb2.Chunk(sequence=1, columns=[trajectory_pb2.Column(name="?")]))
        assert (await upload.failure()).reason == "MALFORMED_CHUNK"


async def test_malformed_chunks_shut_an_actor_out_and_no_other() -> None:
    """After the third, its session ends with a reason and its openings are refused with a time; another actor goes on."""
    async with (
        running() as learner,
        Actor(learner.server.port, "broken") as broken,
        Actor(learner.server.port, "honest") as honest,
    ):
        upload = await honest.join()
        await broken.enter()
        subscription = broken.subscribe()
        await subscription.read()
        with capture_logs() as logs:
            await _malformed_chunks(broken)
            ended = await failure(_to_the_end(subscription))
            assert (ended.code, ended.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUARANTINED")
        assert [line["actor"] for line in logs if line["event"] == "actor_quarantined"] == ["broken"]
        broken.instance_id = honest.instance_id[::-1].replace("-", "")  # a restart does not help
        error = await failure(broken.open())
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUARANTINED")
        assert error.retry_after_seconds is not None
        assert SHORTEST_SECONDS - 30 < error.retry_after_seconds <= SHORTEST_SECONDS
        await upload.deliver(make_chunk(3))
        assert learner.metric("rollcast_learner_quarantines_total") == 1
        assert learner.metric("rollcast_learner_sessions_opened_total", outcome="quarantined") == 1
        assert [view.name for view in learner.sessions.quarantine.view()] == ["broken"]
        assert [session.actor_name for session in learner.sessions.live()] == ["honest"]


async def _to_the_end(subscription: object) -> None:
    while await subscription.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
        pass


async def test_faults_of_every_call_count() -> None:
    """Calls of a session and openings count for the same place; calls that name no place do not."""
    async with running() as learner, Actor(learner.server.port) as actor:
        for _ in range(MAX_FAULTS):
            unreadable: Any = cast("Any", actor.channel.unary_unary("/rollcast.v1.SessionService/OpenSession"))
            await failure(unreadable(b"\xff"))
            await failure(actor.open(actor_name="\n"))
        await actor.open()
        assert (await failure(actor.renew(books=MANY_BOOKS))).reason == "BAD_REQUEST"
        held = [policy_pb2.HeldPolicy()] * (MAX_REPORTS + 1)
        assert (await failure(actor.subscribe(*held).read())).reason == "BAD_REQUEST"
        resume = session_pb2.ResumeSession(session_id="x", books=MANY_BOOKS)
        assert (await failure(actor.open(resume=resume))).reason == "BAD_REQUEST"
        assert (await failure(actor.open())).reason == "QUARANTINED"
        assert not learner.sessions.live()


async def test_refused_rows_shut_nobody_out() -> None:
    """Rows refused for their data warn on the learner and do not count as faults."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        with capture_logs() as logs:
            for sequence in range(1, 3 * MAX_FAULTS):
                chunk = make_chunk(1, sequence=sequence)
                chunk.columns["reward"] = np.full_like(chunk.columns["reward"], math.nan)
                await upload.send(chunk)
                assert (await upload.ack(sequence)).rejections[0].reason == "not_finite"
        assert len([line for line in logs if line["event"] == "rows_rejected"]) == 1, "throttled"
        assert learner.sessions.quarantine.view() == ()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns a folder with two actors' principals, a viewer and an operator."""
    return Folder.make(tmp_path, lab=Role.ACTOR, other=Role.ACTOR, eyes=Role.VIEWER, ops=Role.OPERATOR)


async def test_an_operator_releases_an_actor(folder: Folder) -> None:
    """The status lists it with its principal; only operators release it, which the audit records; then it may come back."""
    audit = Audit(folder.path)
    identity = Identity(Access(folder.path / "tokens", poll_seconds=0), audit=audit)
    async with (
        running(identity=identity) as learner,
        Actor(learner.server.port, "walker", token=folder.tokens["lab"]) as actor,
        Actor(learner.server.port, "walker", token=folder.tokens["other"]) as namesake,
    ):
        await actor.enter()
        await _malformed_chunks(actor)
        await namesake.open()
        _see_status(learner)
        status = await status_of_run(learner, token=folder.tokens["eyes"])
        (shut_out,) = status.run.quarantined
        assert (shut_out.name, shut_out.principal, shut_out.times) == ("walker", "lab", 1)
        assert 0 < shut_out.seconds_left <= SHORTEST_SECONDS
        assert "?" in shut_out.fault
        release = "/api/release?actor=walker"
        assert (await ask(learner, release, token=folder.tokens["eyes"])).reason == "NOT_ALLOWED"
        assert (await failure(actor.open())).reason == "QUARANTINED"
        answer = await ask(learner, release, token=folder.tokens["ops"])
        assert answer.document == {"released": "walker", "count": 1}
        await actor.open()
        assert (await ask(learner, release, token=folder.tokens["ops"])).reason == "NOT_QUARANTINED"
    audit.close()
    lines = lines_in(folder.path)
    assert [(line["action"], line["principal"], line["actor"], line["result"]) for line in lines] == [
        ("release", "ops", "walker", "ok"),
        ("release", "ops", "walker", "NOT_QUARANTINED"),
    ]


def _see_status(learner: Learner) -> None:
    """Lets the operators' status be that of the service."""
    learner.hooks.view = learner.run_status.run_view(learner.hooks.view.state, "127.0.0.1:1")
