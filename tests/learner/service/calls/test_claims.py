"""Tests that what sessions of an earlier start claim is limited."""

from __future__ import annotations

from rollcast.limits import MAX_STEPS
from rollcast.v1 import session_pb2

from learner.service.ingest.session import CLAIMED_AT_ONCE
from learner.service.ingest.session_ids import SessionIds
from learner.service.ingest.snapshots import snapshot
from tests.learner.service.calls.harness import KEY, Actor, running, status_of_run
from tests.learner.service.calls.samples import NAME, make_options
from tests.learner.service.ingest.parts import Parts


async def test_unknown_sessions_cannot_flood_the_books() -> None:
    """Lost steps claimed by sessions that the run opened after the checkpoint are limited and counted once each."""
    issued = [SessionIds(KEY, "run").make("") for _ in range(20)]
    parts = Parts()
    parts.declared(parts.open().session)
    state = snapshot(parts.behaviors, parts.sessions, parts.ledger)
    async with running(make_options(max_sessions=10_000), generation=2, state=state) as learner:
        claim = session_pb2.ActorBooks(produced_steps=MAX_STEPS, acked_steps=MAX_STEPS)
        async with Actor(learner.server.port) as actor:
            for number in range(40):
                resume = session_pb2.ResumeSession(
                    session_id=issued[number % 20], epoch=1, generation=1, acked_through=MAX_STEPS, books=[claim]
                )
                await actor.open(resume=resume, instance_id=f"{number:032x}")
            await status_of_run(learner)
        lost = learner.ledger.books(NAME).lost["rollback"]
        assert 20 * CLAIMED_AT_ONCE <= lost < 2**32  # as many as their age allows
        assert learner.ledger.books(NAME).balanced
