"""Tests that Status answers for any number of actors and reports."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest
from rollcast.errors import BadRequest, MalformedChunk
from rollcast.limits import MAX_STEPS, MAX_STREAMS
from rollcast.v1 import control_pb2, session_pb2

from learner.service.calls.control_calls import MAX_BYTES, status_response
from learner.service.ingest.session import CLAIMED_AT_ONCE, MAX_REPORTED
from learner.service.ingest.session_ids import SessionIds
from learner.service.ingest.snapshots import snapshot
from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.view import RunState, RunView
from tests.learner.service.calls.harness import KEY, Actor, Hooks, eventually, failure, operator, running
from tests.learner.service.calls.samples import NAME, make_chunk, make_options
from tests.learner.service.ingest.parts import Parts, open_default, report


def test_counts_beyond_the_wire_are_shown_as_its_largest() -> None:
    """Sums above 2^64 are shown as the largest value."""
    books = {
        "received": 2**65, "trained": 1, "dropped": {"stale": 2**64}, "queued": 0, "lost": {"rollback": 2**80},
        "duplicate": 2**64, "unknown": 3,
    }  # fmt: skip
    behavior = BehaviorState(NAME, env_steps_taken=2**70, books=books)  # type: ignore[arg-type]
    view = RunView("run", RunState.TRAINING, 1, 1.0, "", behaviors=(behavior,), last_error="x" * 10_000_000)
    parts = Parts()
    session = parts.open().session
    parts.declared(session)
    session.accounts[0].granted_steps = 2**62
    session.last_seen = -1e30
    shown = status_response(view, [session], server_version="1", now=0.0, rate_of=lambda _: 1e30)
    assert shown.behaviors[0].books.received == shown.behaviors[0].env_steps_taken == MAX_REPORTED
    assert shown.behaviors[0].books.lost[0].steps == MAX_REPORTED
    assert shown.actors[0].last_seen_ms == MAX_REPORTED
    assert shown.ByteSize() <= MAX_BYTES


def test_what_does_not_fit_a_message_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Status that exceeds a message drops books and policies of the last actors first."""
    most_bytes = MAX_BYTES // 10
    monkeypatch.setattr("learner.service.calls.control_calls.MAX_BYTES", most_bytes)
    parts = Parts(open_default(max_sessions=10_000))
    sessions = [parts.open("\U0001f600" * 250 + str(number)).session for number in range(2)]
    for session in sessions:
        for name in ("Walker", "Hopper"):
            parts.declared(session, name)
        reasons = {f"reason_{number:057d}": 1 for number in range(64)}
        for account in session.accounts.values():
            account.report(report(discarded=reasons, dropped=reasons))
    view = RunView("run", RunState.TRAINING, 1, 1.0, "")

    def answer(count: int) -> control_pb2.StatusResponse:
        return status_response(view, sessions * count, server_version="1", now=0.0, rate_of=lambda _: 0.0)

    for count in (1, 30, 300):
        shown = answer(count)
        assert shown.ByteSize() <= most_bytes
        detailed = [bool(actor.books) for actor in shown.actors]
        assert detailed == sorted(detailed, reverse=True)
        assert (len(detailed) == 2 * count) == (count < 300)
        assert all(detailed) == (count == 1)


async def test_claims_without_bounds_are_refused_and_status_goes_on() -> None:
    """Counters beyond the bounds are BAD_REQUEST or MALFORMED_CHUNK, and undeclared policies are ignored."""
    async with running() as learner, Actor(learner.server.port) as actor, operator(learner) as control:
        upload = await actor.join()
        books = session_pb2.ActorBooks()
        for _ in range(3000):
            books.discarded.add(reason="reset", steps=MAX_STEPS)
        assert isinstance(await failure(actor.renew(books=[books])), BadRequest)
        policies = [session_pb2.PolicyReport(behavior_index=index, error="x" * 500) for index in range(100)]
        await actor.renew(policies=policies)
        status = await control.Status(control_pb2.StatusRequest())
        assert [policy.behavior_index for policy in status.actors[0].policies] == [0]
        await upload.send(make_chunk(discarded={"reset": MAX_STEPS, "env_error": 1}))
        assert isinstance(await failure(upload.ack(1)), MalformedChunk)


async def test_unknown_sessions_cannot_flood_the_books() -> None:
    """Lost steps claimed by sessions that the run opened after the checkpoint are limited and counted once each."""
    issued = [SessionIds(KEY, "run").make("") for _ in range(20)]
    parts = Parts()
    parts.declared(parts.open().session)
    state = snapshot(parts.behaviors, parts.sessions, parts.ledger)
    async with running(make_options(max_sessions=10_000), generation=2, state=state) as learner:
        claim = session_pb2.ActorBooks(produced_steps=MAX_STEPS, acked_steps=MAX_STEPS)
        async with Actor(learner.server.port) as actor, operator(learner) as control:
            for number in range(40):
                resume = session_pb2.ResumeSession(
                    session_id=issued[number % 20], epoch=1, generation=1, acked_through=MAX_STEPS, books=[claim]
                )
                await actor.open(resume=resume, instance_id=f"{number:032x}")
            await control.Status(control_pb2.StatusRequest())
        lost = learner.ledger.books(NAME).lost["rollback"]
        assert 20 * CLAIMED_AT_ONCE <= lost < 2**32  # as many as their age allows
        assert learner.ledger.books(NAME).balanced


class BusyHooks(Hooks):
    """A learner in a long update."""

    def __init__(self) -> None:
        super().__init__()
        self.update_over = threading.Event()

    def pause(self) -> None:
        """Waits for the update."""
        self.update_over.wait(60)
        super().pause()

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Waits for the update."""
        self.calls.append("begun")
        self.update_over.wait(60)
        return super().save_checkpoint(timeout_seconds)


@pytest.mark.parametrize("method", ["SaveCheckpoint", "Pause"])
async def test_a_storm_of_orders_does_not_hold_up_status(method: str) -> None:
    """While hundreds of requests wait, Status answers, and their saves are two checkpoints."""
    async with AsyncExitStack() as opened:
        learner = await opened.enter_async_context(running(hooks=BusyHooks()))
        control, *others = [await opened.enter_async_context(operator(learner)) for _ in range(14)]
        hooks = learner.hooks
        assert isinstance(hooks, BusyHooks)
        request = getattr(control_pb2, f"{method}Request")
        first = getattr(control, method)(request(), timeout=60)
        if method == "SaveCheckpoint":
            await eventually(lambda: hooks.calls == ["begun"])
        storm = [getattr(other, method)(request(), timeout=60) for other in others for _ in range(MAX_STREAMS)]
        impatient = getattr(control, method)(request(), timeout=0.2)
        await failure(impatient)
        await control.Status(control_pb2.StatusRequest(), timeout=20)
        hooks.update_over.set()
        answers = await asyncio.gather(first, *storm)
        assert len(answers) == 1 + 13 * MAX_STREAMS
        if method == "SaveCheckpoint":
            assert hooks.calls.count("begun") == 2
