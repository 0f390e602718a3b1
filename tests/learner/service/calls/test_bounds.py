"""Tests that no request costs the service more than its bounds allow."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from rollcast.limits import MAX_REPORTS, MAX_REQUEST_BYTES, MIB
from rollcast.trajectories import encode_chunk
from rollcast.v1 import policy_pb2, session_pb2, trajectory_pb2

from learner.service.calls import policy_calls, trajectory
from tests.learner.service.calls.harness import Actor, eventually, failure, running
from tests.learner.service.calls.samples import NAME, make_chunk, make_options, make_policy, make_spec

MANY = 40_000
"""Empty messages that exceed the bytes of a request, at two bytes each."""


@pytest.mark.parametrize(
    "request_message",
    [
        session_pb2.OpenSessionRequest(
            protocol_revision=1,
            actor_name="actor",
            instance_id="x" * 36,
            resume=session_pb2.ResumeSession(books=[session_pb2.ActorBooks()] * MANY),
        ),
        session_pb2.RenewSessionRequest(books=[session_pb2.ActorBooks()] * MANY),
        session_pb2.CloseSessionRequest(message="x" * 2 * MANY),
    ],
    ids=["OpenSession", "RenewSession", "CloseSession"],
)
async def test_a_large_request_is_refused_before_it_is_parsed(request_message: object) -> None:
    """A request that would become very many objects is refused by its size, and counted."""
    async with running() as learner, Actor(learner.server.port) as actor:
        method = getattr(actor.sessions, type(request_message).__name__.removesuffix("Request"))
        error = await failure(actor.call(method, request_message))
        assert (error.reason, error.metadata["bound"]) == ("BAD_REQUEST", "request_bytes")
        assert error.metadata["max_bytes"] == str(MAX_REQUEST_BYTES)
        assert learner.metric("rollcast_learner_bounds_total", bound="request_bytes") == 1


async def test_a_declaration_may_be_larger_than_other_requests() -> None:
    """A declaration of 100 KiB is read: its descriptions are then compared with the actions."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.open()
        spec = make_spec().to_message()
        spec.action.descriptions.extend(["x" * 100] * 1000)
        request = session_pb2.DeclareBehaviorRequest(session_id=actor.session_id, epoch=actor.epoch, spec=spec)
        assert (await failure(actor.call(actor.sessions.DeclareBehavior, request))).reason == "BAD_SPEC"
        spec.action.descriptions.extend(["x" * 100] * 10_000)
        request = session_pb2.DeclareBehaviorRequest(session_id=actor.session_id, epoch=actor.epoch, spec=spec)
        error = await failure(actor.call(actor.sessions.DeclareBehavior, request))
        assert error.metadata["bound"] == "request_bytes"


async def test_lists_are_counted_before_their_entries_are_read() -> None:
    """Too long a list is refused for its length, although its first entry is invalid, too."""
    books = [session_pb2.ActorBooks(produced_steps=2**60)] * (MAX_REPORTS + 1)
    async with running() as learner, Actor(learner.server.port) as actor:
        learner.forgive()
        await actor.open()
        for call in (actor.renew(books=books), actor.close(books=books)):
            error = await failure(call)
            assert (error.reason, error.metadata["bound"]) == ("BAD_REQUEST", "entries")
        reasons = [session_pb2.ReasonCount(reason="reset", steps=1)] * 1000
        assert "1000 reasons" in (await failure(actor.renew(books=[session_pb2.ActorBooks(discarded=reasons)]))).message
        held = [policy_pb2.HeldPolicy()] * (MAX_REPORTS + 1)
        error = await failure(actor.subscribe(*held).read())
        assert (error.reason, error.metadata["bound"]) == ("BAD_REQUEST", "entries")
        assert learner.metric("rollcast_learner_bounds_total", bound="entries") == 3


async def test_a_chunk_of_empty_parts_is_refused_before_it_is_parsed() -> None:
    """A chunk of very many empty columns is refused by their number."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.send_message(trajectory_pb2.Chunk(sequence=1, columns=[trajectory_pb2.Column()] * MANY))
        error = await upload.failure()
        assert (error.reason, error.metadata["bound"]) == ("MALFORMED_CHUNK", "chunk_fields")
        assert learner.metric("rollcast_learner_bounds_total", bound="chunk_fields") == 1


def _unreadable(**fields: int) -> trajectory_pb2.Chunk:
    """Returns a chunk whose column cannot be unpacked."""
    message = encode_chunk(make_chunk(3))
    message.columns[0].tensor.encoding = 2  # type: ignore[assignment]
    for name, value in fields.items():
        setattr(message, name, value)
    return message


async def test_generation_and_credit_are_judged_before_a_column_is_unpacked() -> None:
    """Rows of an earlier generation or without credit are refused for that; their columns are not read."""
    async with running(generation=2) as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.send_message(_unreadable(generation=1))
        assert (await upload.ack(1)).rejections[0].reason == "generation"
        await upload.send_message(_unreadable(sequence=2, generation=2, rows=10**6))
        assert (await upload.failure()).reason == "CREDIT_EXCEEDED"
        upload = await actor.opened_upload()
        await upload.send_message(_unreadable(sequence=2, generation=2))
        assert (await upload.failure()).reason == "MALFORMED_CHUNK"


async def test_a_session_that_takes_too_much_of_the_loop_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a session that cost more than its budget are read later, and the pause is counted; the debt outlives its stream."""
    used_seconds = itertools.count(step=0.11)
    clock = SimpleNamespace(thread_time=lambda: next(used_seconds), monotonic=lambda: 1000.0)
    monkeypatch.setattr(trajectory, "time", clock)
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        for sequence in (1, 2):
            await upload.send(make_chunk(sequence=sequence))
            await upload.ack(sequence)
            assert learner.metric("rollcast_learner_bounds_total", bound="loop_time") == sequence - 1
        upload.call.cancel()
        upload = await actor.upload()
        await upload.deliver(make_chunk(sequence=3))
        assert learner.metric("rollcast_learner_bounds_total", bound="loop_time") == 2


async def test_a_session_fetches_few_policies_at_once() -> None:
    """One call more than the limit is refused with a time to retry; the others go on, and then there is room again."""
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        learner.publish(make_policy(0, size=16 * MIB))
        await actor.enter()
        request = policy_pb2.GetPolicyRequest(session_id=actor.session_id, behavior=NAME)
        calls = [actor.policies.GetPolicy(request) for _ in range(policy_calls.MAX_FETCHES)]
        for call in calls:
            await call.read()  # its header
        error = await failure(actor.policies.GetPolicy(request).read())
        assert (error.reason, error.retry_after_seconds) == ("TOO_MANY_CALLS", policy_calls.RETRY_SECONDS)
        assert learner.metric("rollcast_learner_bounds_total", bound="calls") == 1
        for call in calls:
            call.cancel()
        await eventually(lambda: not learner.server._policy_service._fetches)
        await actor.policies.GetPolicy(request).read()


async def test_a_client_that_takes_nothing_does_not_keep_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without a taken message the call ends, whether it fetches a version or subscribes."""
    monkeypatch.setattr(policy_calls, "WRITE_SECONDS", 0.2)
    async with running(has_policy=False) as learner, Actor(learner.server.port) as actor:
        learner.publish(make_policy(0, size=32 * MIB))
        await actor.enter()
        request = policy_pb2.GetPolicyRequest(session_id=actor.session_id, behavior=NAME)
        calls = [actor.policies.GetPolicy(request), actor.subscribe()]
        for call in calls:
            await call.read()
        await eventually(lambda: learner.metric("rollcast_learner_bounds_total", bound="slow") == 2)
        assert learner.metric("rollcast_learner_policy_sends_total", outcome="aborted") == 2
        await eventually(lambda: not learner.server._policy_service._fetches)


async def test_uploads_that_say_nothing_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload without a first message ends after a while, and the session can begin another."""
    monkeypatch.setattr(trajectory, "OPEN_SECONDS", 0.2)
    async with running() as learner, Actor(learner.server.port) as actor:
        error = await failure(actor.trajectories.Upload().read())
        assert (error.reason, error.metadata["bound"]) == ("TOO_SLOW", "unopened")
        monkeypatch.setattr(trajectory, "OPEN_SECONDS", 300.0)
        await actor.join()


async def test_few_uploads_may_wait_for_their_first_message() -> None:
    """Above the limit of connections, an upload that says nothing is refused with a time to retry."""
    options = make_options(max_sessions=1, max_streams=100)
    async with running(options) as learner, Actor(learner.server.port) as actor:
        silent = [actor.trajectories.Upload() for _ in range(options.rollcast.connection_limit)]
        await eventually(lambda: learner.server._trajectory_service._unopened == len(silent))
        error = await failure(actor.trajectories.Upload().read())
        assert (error.reason, error.metadata["bound"]) == ("TOO_MANY_CALLS", "unopened")
        for call in silent:
            call.cancel()
        await eventually(lambda: not learner.server._trajectory_service._unopened)
        await actor.join()


async def test_compressed_chunks_of_one_player_leave_room_for_the_others() -> None:
    """A lock-step player that fills the queue with highly compressed chunks is named, and the others' chunks are taken."""
    options = make_options(
        lockstep={"actors": 2}, queue_bytes=MIB, max_chunk_bytes=MIB // 4, target_chunk_bytes=MIB // 8
    )
    async with (
        running(options) as learner,
        Actor(learner.server.port, "greedy") as greedy,
        Actor(learner.server.port, "honest") as honest,
    ):
        filling, upload = await greedy.join(), await honest.join()
        learner.pace(ahead_limit_steps=1000)
        for granted in (filling, upload):  # in lock-step, any number of steps
            assert (await granted.until("ack")).credit
        for sequence in range(1, 7):
            chunk = make_chunk(8000, sequence=sequence)
            message = encode_chunk(chunk, compress=frozenset(chunk.columns))
            assert message.ByteSize() < MIB // 64
            await filling.send_message(message)
        await eventually(lambda: len(learner.trainers.full) == 1)
        (full,) = learner.trainers.full
        assert full.place == learner.sessions.find(greedy.session_id).actor_index
        await upload.deliver(make_chunk(1000))
