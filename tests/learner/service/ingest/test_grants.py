"""Tests credit of several sessions with one behavior."""

from __future__ import annotations

import pytest
from rollcast.errors import RingTooSmall

from learner.link.to_front import Pace
from learner.service.ingest.credit import MAX_GRANT, step_allowance
from learner.service.ingest.grants import UNTRAINED_STEPS, CreditAllocator, Grant
from learner.service.ingest.openings import Opening
from learner.service.ingest.session import MAX_AGENTS, ActorSession
from tests.learner.service.ingest.parts import NAME, Parts, report

ALLOWANCE = step_allowance(1, 8)


class Desk:
    """A credit table with two sessions of one behavior."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.first, self.second = (self.parts.open(name).session for name in ("a", "b"))
        for session in (self.first, self.second):
            self.behavior = self.parts.declared(session)
        self.allocator = CreditAllocator(self.parts.behaviors)

    def grant(self, session: ActorSession) -> Grant:
        """Grants credit to a session."""
        granted = self.allocator.grant(session, session.accounts[0])
        assert granted is not None
        return granted


def test_without_a_pace_there_is_only_the_allowance() -> None:
    """Before a trainer sets its pace, actors may only finish their segments."""
    dispatcher = Desk()
    assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE


def test_all_grants_together_keep_the_limit() -> None:
    """The sum of all reserves never exceeds the trainer's limit."""
    dispatcher = Desk()
    dispatcher.grant(dispatcher.first)
    dispatcher.grant(dispatcher.second)
    dispatcher.parts.trainers.settle(pace=Pace(ahead_limit_steps=100))
    for _ in range(3):
        assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE + 50
        assert dispatcher.grant(dispatcher.second).steps_through == ALLOWANCE + 50


def test_a_session_that_ends_gives_its_share_back() -> None:
    """The reserve of an ended session is granted to others."""
    dispatcher = Desk()
    dispatcher.parts.trainers.settle(pace=Pace(ahead_limit_steps=100))
    dispatcher.grant(dispatcher.second)
    dispatcher.grant(dispatcher.first)
    dispatcher.allocator.forget(dispatcher.second)
    assert dispatcher.allocator.is_worth_sending(dispatcher.first, dispatcher.first.accounts[0])
    assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE + 100


def test_a_stream_that_outlives_its_session_takes_no_credit() -> None:
    """Whatever its stream still asks for, an ended session has no part in the credit of the others."""
    dispatcher = Desk()
    dispatcher.parts.trainers.settle(pace=Pace(ahead_limit_steps=100))
    dispatcher.grant(dispatcher.second)
    dispatcher.parts.sessions.close(dispatcher.second, ())
    dispatcher.allocator.forget(dispatcher.second)
    assert not dispatcher.allocator.is_worth_sending(dispatcher.second, dispatcher.second.accounts[0])
    assert dispatcher.allocator.grant(dispatcher.second, dispatcher.second.accounts[0]) is None
    assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE + 100


@pytest.mark.parametrize("way", ["report", "chunk"])
def test_a_claim_of_agents_opens_no_more_steps_than_updates_can_use(way: str) -> None:
    """However many agents an actor claims, and by whatever message, its allowance is limited."""
    dispatcher = Desk()
    dispatcher.parts.trainers.settle(pace=Pace(ahead_limit_steps=100))
    account = dispatcher.first.accounts[0]
    if way == "report":
        dispatcher.parts.sessions.renew(dispatcher.first, [report(agents=MAX_AGENTS)])
    else:
        account.agents = MAX_AGENTS  # as `ChunkIntake` does
    most = dispatcher.behavior.most_open_steps
    assert most == max(8 * 10240, 1024 * 9)
    assert dispatcher.grant(dispatcher.first).steps_through <= most + 100


def test_an_actor_of_very_many_agents_gets_shorter_segments() -> None:
    """Agents whose segments would be too many steps have shorter ones, so that none waits for credit; too many are refused."""
    dispatcher = Desk()
    most = dispatcher.behavior.most_open_steps
    for agents, horizon in ((most // 9, 8), (most // 5, 4), (most // 2, 1)):
        account = dispatcher.parts.sessions.declare(dispatcher.first, dispatcher.behavior, 0, agents)
        assert account.time_horizon == horizon
        assert account.step_share.allowance == agents * (horizon + 1) <= most
    with pytest.raises(RingTooSmall, match="at most 40960 are allowed"):
        dispatcher.parts.sessions.declare(dispatcher.first, dispatcher.behavior, 0, most // 2 + 1)


@pytest.mark.parametrize("hoarder", ["other", "lab"])
def test_steps_that_others_hoard_leave_a_session_its_share(hoarder: str) -> None:
    """Above the limit, a session still has credit up to its share; the hoarder has none."""
    parts = Parts()
    mine, other = (
        parts.sessions.open(Opening(name, f"instance of {name}", principal=principal)).session
        for name, principal in (("mine", "lab"), ("other", hoarder))
    )
    parts.declared(other)
    behavior = parts.declared(mine)
    allocator = CreditAllocator(parts.behaviors)
    parts.trainers.settle(pace=Pace(ahead_limit_steps=100))
    for session in (mine, other):
        allocator.grant(session, session.accounts[0])
    behavior.queue.unsettled.add(other.session_id, other.principal, 10_000)
    parts.ledger.enqueue(NAME, 10_000)
    other.accounts[0].received_steps = 10_000
    before = other.accounts[0].granted_steps
    granted = allocator.grant(mine, mine.accounts[0])
    assert granted is not None
    assert granted.steps_through >= ALLOWANCE
    mine.accounts[0].received_steps = 30
    behavior.queue.unsettled.add(mine.session_id, mine.principal, 30)
    granted = allocator.grant(mine, mine.accounts[0])
    assert granted is not None
    assert granted.steps_through >= 30 + ALLOWANCE
    allocator.grant(other, other.accounts[0])
    assert other.accounts[0].granted_steps == before


def test_steps_given_up_are_off_the_account() -> None:
    """Discarded, dropped and rolled-back steps do not use credit."""
    dispatcher = Desk()
    account = dispatcher.first.accounts[0]
    account.report(report(produced=20, discarded={"reset": 5}, dropped={"generation": 6}, acked=4))
    assert dispatcher.grant(dispatcher.first).steps_through == 15 + ALLOWANCE
    account.roll_back(report(produced=20, discarded={"reset": 5}, dropped={"generation": 6}, acked=4))
    assert dispatcher.grant(dispatcher.first).steps_through == 20 + ALLOWANCE
    account.report(report(produced=20, discarded={"reset": 6}, dropped={"generation": 10}, acked=4))
    assert dispatcher.grant(dispatcher.first).steps_through == 20 + ALLOWANCE


def test_bytes_follow_the_queue() -> None:
    """Bytes fill the shared queue, and one chunk is always allowed."""
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
    """A behavior without training has credit for the delay of acks."""
    dispatcher = Desk()
    dispatcher.parts.trainers.finish()
    assert dispatcher.grant(dispatcher.first).steps_through == ALLOWANCE + UNTRAINED_STEPS


def test_a_closed_office_grants_nothing() -> None:
    """No credit is granted while the learner drains."""
    dispatcher = Desk()
    dispatcher.allocator.is_closed = True
    assert dispatcher.allocator.grant(dispatcher.first, dispatcher.first.accounts[0]) is None
    assert not dispatcher.allocator.is_worth_sending(dispatcher.first, dispatcher.first.accounts[0])
