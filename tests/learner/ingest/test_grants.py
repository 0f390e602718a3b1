"""Credit of several sessions with one behavior."""

from __future__ import annotations

from learner.ingest.credit import MAX_GRANT, step_allowance
from learner.ingest.grants import UNTRAINED_STEPS, CreditAllocator, Grant
from learner.ingest.session import ActorSession
from learner.link.experience import Pace
from tests.learner.ingest.parts import Parts, report

ALLOWANCE = step_allowance(1, 8)


class Desk:
    """An office and two sessions that play one behavior."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.first, self.second = (self.parts.open(name).session for name in ("a", "b"))
        for session in (self.first, self.second):
            self.behavior = self.parts.declared(session)
        self.allocator = CreditAllocator(self.parts.behaviors)

    def grant(self, session: ActorSession) -> Grant:
        """Grants to a session."""
        granted = self.allocator.grant(session, session.accounts[0])
        assert granted is not None
        return granted


def test_without_a_pace_there_is_only_the_allowance() -> None:
    """Before a trainer says anything, actors may finish their segments and no more."""
    dispatcher = Desk()
    assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE


def test_all_grants_together_keep_the_limit() -> None:
    """Whoever asks, and however often, reserves stay within what the trainer allows."""
    dispatcher = Desk()
    dispatcher.grant(dispatcher.first)
    dispatcher.grant(dispatcher.second)
    dispatcher.behavior.queue.set_pace(Pace(ahead_limit_steps=100))
    for _ in range(3):
        assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE + 50
        assert dispatcher.grant(dispatcher.second).steps_through == ALLOWANCE + 50


def test_a_session_that_ends_gives_its_share_back() -> None:
    """What a lost actor had in reserve is granted to the others."""
    dispatcher = Desk()
    dispatcher.behavior.queue.set_pace(Pace(ahead_limit_steps=100))
    dispatcher.grant(dispatcher.second)
    dispatcher.grant(dispatcher.first)
    dispatcher.allocator.forget(dispatcher.second)
    assert dispatcher.allocator.is_worth_sending(dispatcher.first, dispatcher.first.accounts[0])
    assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE + 100


def test_steps_given_up_are_off_the_account() -> None:
    """Discarded and dropped steps, and what a rolled back actor must drop, do not stand in the way of new ones."""
    dispatcher = Desk()
    account = dispatcher.first.accounts[0]
    account.report(report(produced=20, discarded={"reset": 5}, dropped={"generation": 6}, acked=4))
    assert dispatcher.grant(dispatcher.first).steps_through == 15 + ALLOWANCE
    account.roll_back(report(produced=20, discarded={"reset": 5}, dropped={"generation": 6}, acked=4))
    assert dispatcher.grant(dispatcher.first).steps_through == 20 + ALLOWANCE
    account.report(report(produced=20, discarded={"reset": 6}, dropped={"generation": 10}, acked=4))
    assert dispatcher.grant(dispatcher.first).steps_through == 20 + ALLOWANCE


def test_bytes_follow_the_queue() -> None:
    """Bytes may fill the queue, shared; one chunk is always allowed; after a rollback there is no limit in bytes."""
    dispatcher = Desk()
    chunk_bytes, capacity = 4 * 2**20, dispatcher.behavior.queue.capacity_bytes
    dispatcher.grant(dispatcher.second)
    assert dispatcher.grant(dispatcher.first).bytes_through <= chunk_bytes + capacity
    reserved = sum(s.accounts[0].byte_share.reserved for s in (dispatcher.first, dispatcher.second))
    assert reserved <= capacity
    account = dispatcher.first.accounts[0]
    account.roll_back(report(produced=1))
    assert dispatcher.grant(dispatcher.first).bytes_through == MAX_GRANT


def test_an_untrained_behavior_may_run_on() -> None:
    """Where chunks are acked at once, credit only bridges the way of the acks."""
    dispatcher = Desk()
    dispatcher.parts.behaviors.stop_training(dispatcher.behavior)
    assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE + UNTRAINED_STEPS


def test_a_closed_office_grants_nothing() -> None:
    """While the learner drains there is no more credit."""
    dispatcher = Desk()
    dispatcher.allocator.is_closed = True
    assert dispatcher.allocator.grant(dispatcher.first, dispatcher.first.accounts[0]) is None
    assert not dispatcher.allocator.is_worth_sending(dispatcher.first, dispatcher.first.accounts[0])
