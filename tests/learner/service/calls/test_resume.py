"""Tests disconnects (same generation) and restarts (a new generation from a checkpoint)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from rollcast.errors import SessionFenced
from rollcast.limits import PROTOCOL_REVISION
from rollcast.trajectories import encode_chunk
from rollcast.v1 import session_pb2, trajectory_pb2

from learner.service.ingest.credit import step_allowance
from learner.service.ingest.session import ActorSession
from learner.service.ingest.session_ids import short_id
from learner.service.ingest.snapshots import snapshot
from learner.shared.runfolder.received import ReceivedSteps
from tests.learner.service.calls.harness import Actor, Learner, eventually, failure, running
from tests.learner.service.calls.samples import NAME, make_chunk, make_options, make_spec
from tests.learner.service.ingest.parts import open_default


def saved(learner: Learner) -> dict[str, Any]:
    """Returns what a checkpoint holds of the service."""
    return snapshot(learner.behaviors, learner.sessions, learner.ledger)


def resumption(actor: Actor, generation: int, acked: int, **books: Any) -> session_pb2.ResumeSession:
    """Returns what an actor reports at its return."""
    return session_pb2.ResumeSession(
        session_id=actor.session_id,
        epoch=actor.epoch,
        generation=generation,
        acked_through=acked,
        books=[session_pb2.ActorBooks(agents=1, **books)],
    )


def assert_balanced(learner: Learner, **expected: Mapping[str, int] | int) -> None:
    """Compares the books with what is expected of them."""
    books = learner.ledger.books(NAME)
    assert books.balanced
    assert {name: getattr(books, name) for name in expected} == expected


async def test_same_generation_goes_on_where_it_was() -> None:
    """After a disconnect acked chunks are not sent again, and the others arrive once."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(*(make_chunk(sequence=sequence) for sequence in (1, 2)))
        upload.call.cancel()
        opened = await actor.open(resume=resumption(actor, 1, 1, produced_steps=9, acked_steps=3, unacked_steps=6))
        assert (opened.resumed, opened.next_sequence, opened.epoch) == (True, 3, 2)
        upload = await actor.upload()
        assert (await upload.until("opened")).next_sequence == 3
        await upload.deliver(make_chunk(sequence=3))
        assert_balanced(learner, received=9, queued=9, lost={}, duplicate=0)


async def test_an_actor_that_returns_after_its_lease_sends_its_window_again() -> None:
    """A partition longer than the lease ends the stream; the actor returns, sends what was not acked, and nothing is lost."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(*(make_chunk(sequence=sequence) for sequence in (1, 2)))
        learner.end_lease(actor)
        assert (await upload.failure()).reason == "SESSION_EXPIRED"
        assert len(learner.sessions.away()) == 1
        opened = await actor.open(resume=resumption(actor, 1, 1, produced_steps=9, acked_steps=3, unacked_steps=6))
        assert (opened.resumed, opened.next_sequence, len(learner.sessions.away())) == (True, 3, 0)
        upload = await actor.upload()
        await upload.deliver(*(make_chunk(sequence=sequence) for sequence in (2, 3)))
        assert_balanced(learner, received=9, queued=9, dropped={}, lost={}, duplicate=3)


async def test_nothing_of_a_fenced_stream_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that waits for its session's time on the loop is not taken once the session was opened again."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.join()
        (session,) = learner.sessions.live()
        service = learner.server._trajectory_service
        stream = learner.server._router.attach(session, session.epoch)
        waits, goes_on = asyncio.Event(), asyncio.Event()
        request = trajectory_pb2.UploadRequest(chunk=encode_chunk(make_chunk())).SerializeToString()

        async def requests() -> AsyncIterator[bytes]:
            yield request

        async def wait(_session: ActorSession) -> None:
            waits.set()
            await goes_on.wait()

        monkeypatch.setattr(service, "_wait", wait)
        reader = asyncio.ensure_future(service._read(stream, requests()))
        await waits.wait()
        stream.end(SessionFenced("opened again"))  # its writer would be in a write to an actor that does not read
        goes_on.set()
        await reader
        assert_balanced(learner, received=0, queued=0)
        assert session.acked_through == 0


async def test_a_restart_from_a_checkpoint_balances_the_books() -> None:
    """After a restart queued steps are lost as restart, and later acked ones as rollback."""
    async with running() as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(*(make_chunk(5, sequence=sequence) for sequence in (1, 2)))
        learner.trainers.settle(trained=6)
        await eventually(lambda: learner.ledger.books(NAME).trained == 6)
        state = saved(learner)
        await upload.deliver(make_chunk(7, sequence=3, produced_steps=17))
    async with running(generation=2, state=state) as learner, Actor(learner.server.port) as again:
        assert_balanced(learner, received=10, trained=6, lost={"restart": 4}, queued=0, unknown_sessions=1)
        again.instance_id, again.session_id, again.epoch = actor.instance_id, actor.session_id, actor.epoch
        resume = resumption(actor, 1, 3, produced_steps=24, acked_steps=17, unacked_steps=4, open_steps=3)
        opened = await again.open(resume=resume)
        assert (opened.resumed, opened.generation, opened.next_sequence) == (True, 2, 4)
        assert opened.epoch > actor.epoch - 1
        assert_balanced(learner, received=17, lost={"restart": 4, "rollback": 7}, unknown_sessions=0)
        assert learner.sessions.steps_taken(0) == 24
        await again.declare()
        upload = await again.upload()
        message = await upload.until("opened")
        assert message.next_sequence == 4
        assert message.credit[0].steps_through == 24 + step_allowance(1, 8)
        assert message.credit[0].bytes_through >= 2**60
        await upload.deliver(make_chunk(2, sequence=4, generation=2, produced_steps=26))
        assert_balanced(learner, received=19, queued=2, trained=6)


async def test_a_session_younger_than_the_checkpoint_is_settled() -> None:
    """A session from after the checkpoint counts as rollback, and its actor gets a new one."""
    async with running() as learner, Actor(learner.server.port, "first") as first:
        await first.enter()
        state = saved(learner)
        async with Actor(learner.server.port, "second") as second:
            upload = await second.join()
            await upload.deliver(make_chunk(5))
    async with running(generation=2, state=state) as learner, Actor(learner.server.port, "second") as again:
        again.instance_id = second.instance_id
        resume = resumption(second, 1, 1, produced_steps=6, acked_steps=5)
        for _ in range(2):
            opened = await again.open(resume=resume)
            assert (opened.resumed, opened.next_sequence) == (False, 1)
        assert_balanced(learner, received=5, lost={"rollback": 5}, unknown_sessions=1)
        assert learner.sessions.steps_taken(0) == 6


async def test_the_record_names_all_that_was_acked_after_the_checkpoint(tmp_path: Path) -> None:
    """Steps acked after the checkpoint are lost{restart}; returning actors add nothing, whatever they claim."""
    record = functools.partial(ReceivedSteps, tmp_path, 4)
    async with running(received=record()) as learner, Actor(learner.server.port, "first") as first:
        upload = await first.join()
        await upload.deliver(make_chunk(3))
        state = saved(learner)
        await upload.deliver(make_chunk(4, sequence=2, produced_steps=7))
        async with Actor(learner.server.port, "younger") as younger:
            upload = await younger.join()
            await upload.deliver(make_chunk(5, produced_steps=5))
    async with running(generation=2, state=state, received=record()) as learner:
        assert_balanced(learner, received=12, lost={"restart": 12}, unknown_sessions=2)
        assert learner.sessions.steps_taken(0) == 12
        for actor, claimed, through in ((first, 7, 2), (younger, 2**40, 1)):
            async with Actor(learner.server.port, actor.name) as again:
                again.instance_id = actor.instance_id
                resume = resumption(actor, 1, 0, produced_steps=claimed, acked_steps=claimed)
                opened = await again.open(resume=resume, protocol_revision=PROTOCOL_REVISION)
                assert (opened.resumed, opened.settled_through) == (actor is first, through)
        assert_balanced(learner, received=12, lost={"restart": 12}, unknown_sessions=0)
    # The second restart from the same checkpoint finds the same steps lost.
    async with running(generation=3, state=state, received=record()) as learner:
        assert_balanced(learner, received=12, lost={"restart": 12})


async def test_the_record_names_what_was_acked_before_the_first_run_state(tmp_path: Path) -> None:
    """Without a run state, all that was acked is lost{restart}, also for a behavior whose index has changed."""
    options = open_default()
    record = functools.partial(ReceivedSteps, tmp_path, 4)
    async with running(options, received=record()) as learner, Actor(learner.server.port) as actor:
        await actor.enter(make_spec("Walker"))
        upload = await actor.join()
        await upload.deliver(*(make_chunk(5, sequence=sequence, behavior_index=1) for sequence in (1, 2)))
    for generation in (2, 3):  # killed again before it saved a state
        async with running(options, generation=generation, received=record()) as learner:
            assert_balanced(learner, received=10, lost={"restart": 10}, queued=0)
            async with Actor(learner.server.port, "other") as other:
                await other.enter()
                assert learner.sessions.steps_taken(0) == 10
            async with Actor(learner.server.port) as again:
                again.instance_id = actor.instance_id
                resume = session_pb2.ResumeSession(
                    session_id=actor.session_id,
                    epoch=1,
                    generation=1,
                    acked_through=1,
                    books=[
                        session_pb2.ActorBooks(behavior_index=1, produced_steps=17, acked_steps=5, unacked_steps=12)
                    ],
                )
                opened = await again.open(resume=resume, protocol_revision=PROTOCOL_REVISION)
                assert (opened.resumed, opened.settled_through) == (False, 2)
            assert learner.sessions.steps_taken(0) == 17
            assert_balanced(learner, received=10, lost={"restart": 10}, unknown_sessions=0)


@pytest.mark.parametrize("saved_when", ["before it opened", "before it left", "after it left"])
async def test_the_steps_of_an_actor_that_left_count_once(tmp_path: Path, saved_when: str) -> None:
    """However often a learner is killed after an actor left, no step is counted again, and its session is not unknown."""
    record = functools.partial(ReceivedSteps, tmp_path, 4)
    async with running(received=record()) as learner, Actor(learner.server.port, "other") as other:
        await other.enter()
        states = {"before it opened": saved(learner)}
        async with Actor(learner.server.port) as actor:
            upload = await actor.join()
            await upload.deliver(
                *(make_chunk(5, sequence=sequence, produced_steps=5 * sequence) for sequence in (1, 2))
            )
            states["before it left"] = saved(learner)
            await actor.close(books=[session_pb2.ActorBooks(produced_steps=17, open_steps=7, acked_steps=10)])
        assert learner.sessions.steps_taken(0) == 17
        states["after it left"] = saved(learner)
        await other.close()
    for generation in (2, 3):
        async with running(generation=generation, state=states[saved_when], received=record()) as learner:
            assert_balanced(
                learner, received=10, lost={"restart": 10}, unknown_sessions=1
            )  # the other, which sent nothing
            state = learner.run_status.behavior_state(learner.behavior)
            assert (state.env_steps_taken, state.is_balanced) == (17, True)
            assert state.actor_books == {"discarded": {"actor_gone": 7}, "dropped": {}, "outstanding": 0}


async def test_an_expired_session_is_told_what_was_received() -> None:
    """An actor whose lease ran out learns what was received, so that it gives up only the rest; others learn nothing."""
    async with running(make_options(resume_grace_seconds=0)) as learner, Actor(learner.server.port) as actor:
        upload = await actor.join()
        await upload.deliver(make_chunk(3))
        learner.end_lease(actor)
        async with Actor(learner.server.port, "other") as other:
            other.session_id = f"{5:064x}"
            assert (await other.open(resume=resumption(other, 1, 0))).settled_through == 0
        opened = await actor.open(resume=resumption(actor, 1, 0, produced_steps=3, unacked_steps=3))
        assert (opened.resumed, opened.settled_through) == (False, 1)


async def test_claims_about_invented_sessions_are_not_booked() -> None:
    """50 openings that name sessions of their own invention leave the books as they are; a real one is booked."""
    async with running() as learner, Actor(learner.server.port) as actor:
        await actor.join()
        state = saved(learner)
        async with Actor(learner.server.port, "younger") as younger:
            await younger.open()
    async with running(generation=2, state=state) as learner:
        before = learner.ledger.books(NAME)
        for number in range(50):
            async with Actor(learner.server.port, f"forger {number}") as forger:
                forger.session_id = f"{number:064x}" if number % 2 else f"{number:032x}"
                resume = resumption(forger, 1, 9, produced_steps=2**40, acked_steps=2**40)
                assert not (await forger.open(resume=resume)).resumed
        assert learner.ledger.books(NAME) == before
        assert learner.sessions.steps_taken(0) == 0
        async with Actor(learner.server.port, "younger") as again:
            await again.open(resume=resumption(younger, 1, 1, produced_steps=5, acked_steps=5))
        assert_balanced(learner, received=5, lost={"rollback": 5})


async def test_errors_and_logs_have_short_names_of_sessions_only() -> None:
    """Neither a log line nor an error has the whole id of a session or of an actor's process."""
    with structlog.testing.capture_logs() as logs:
        async with running() as learner, Actor(learner.server.port) as actor, Actor(learner.server.port) as other:
            await (await actor.join()).finish()
            secrets = (actor.session_id, actor.instance_id)
            other.session_id, other.epoch = actor.session_id, 7
            stolen = resumption(actor, 1, 0)
            errors = [await failure(other.renew()), await failure(other.open(resume=stolen))]
            other.epoch = 0
            errors += [await failure(other.renew()), await failure(other.open(instance_id=actor.instance_id + "x"))]
            await actor.close()
            other.session_id = secrets[0]
            errors.append(await failure(other.renew()))
    assert len({error.reason for error in errors}) >= 3
    written = [f"{error} {error.metadata}" for error in errors] + [repr(line) for line in logs]
    assert [text for text in written if any(secret in text for secret in secrets)] == []
    assert any(short_id(secrets[0]) in text for text in written)


async def test_indices_of_behaviors_that_the_checkpoint_lacks_mean_nothing() -> None:
    """Steps of a behavior from after the checkpoint are not booked under its former index."""
    options = open_default()
    async with running(options) as learner, Actor(learner.server.port) as actor:
        await actor.open()
        state = saved(learner)
    async with running(options, generation=2, state=state) as learner, Actor(learner.server.port, "other") as other:
        await other.enter(make_spec("Walker"))
        async with Actor(learner.server.port) as again:
            again.instance_id = actor.instance_id
            assert (await again.open(resume=resumption(actor, 1, 2, produced_steps=9, acked_steps=9))).resumed
        assert learner.ledger.books("Walker").received == 0
        assert learner.sessions.steps_taken(0) == 0
