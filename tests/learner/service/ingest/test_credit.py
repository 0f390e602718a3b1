"""Tests the rules of credit."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from learner.service.ingest.credit import MAX_GRANT, Common, Share, grant, is_worth_sending, step_allowance

COUNT = st.integers(0, 10**6)


@given(
    st.builds(Common, limit=COUNT, unsettled=COUNT, reserved=COUNT, sessions=st.integers(0, 100)),
    st.builds(Share, settled=COUNT, allowance=COUNT, granted=COUNT),
)
def test_grants_never_fall_and_cover_the_allowance_below_the_limit(common: Common, share: Share) -> None:
    """A grant never falls, and below the limit it is at least settled + allowance."""
    granted = grant(common, share)
    assert granted >= share.granted
    if common.unsettled <= common.limit:
        assert granted >= share.settled + share.allowance
    else:
        assert granted == share.granted


@given(
    st.integers(0, 5000),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["send", "train", "give up"]), st.floats(0, 1)), max_size=60),
)
def test_no_grant_passes_the_limit(limit: int, sessions: int, events: list[tuple[int, str, float]]) -> None:
    """Unsettled and reserved steps stay within the limit, except for used allowances."""
    allowance = 10
    settled, granted, unsettled, received = [0] * sessions, [0] * sessions, 0, [0] * sessions

    def share(index: int) -> Share:
        return Share(settled[index], allowance, granted[index])

    for raw_index, event, part in events:
        index = raw_index % sessions
        possible = granted[index] - settled[index]
        if event == "send":
            unsettled += round(part * possible)
            received[index] += round(part * possible)
            settled[index] += round(part * possible)
        elif event == "give up":
            settled[index] += round(part * possible)
        else:
            unsettled -= round(part * unsettled)
        before = unsettled + sum(share(i).reserved for i in range(sessions))
        common = Common(limit, unsettled, sum(share(i).reserved for i in range(sessions)), sessions)
        granted[index] = grant(common, share(index))
        after = unsettled + sum(share(i).reserved for i in range(sessions))
        assert after <= max(before, limit)


@dataclass
class Vector:
    """An actor that steps all agents together and sends closed segments immediately."""

    agents: int
    time_horizon: int
    open: list[int]
    produced: int = 0
    received: int = 0

    def step(self) -> None:
        """Steps every agent and sends closed segments."""
        for index in range(self.agents):
            self.open[index] += 1
            self.produced += 1
            if self.open[index] == self.time_horizon:
                self.received += self.open[index]
                self.open[index] = 0


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 200), st.integers(1, 9), st.data())
@settings(max_examples=60)
def test_actors_and_a_trainer_never_wait_for_each_other(
    agents: int, time_horizon: int, buffer_steps: int, patience: int, data: st.DataObject
) -> None:
    """Agents anywhere in their segments, a trainer that needs a whole buffer: both always continue, within bounds."""
    first = data.draw(st.lists(st.integers(0, time_horizon - 1), min_size=agents, max_size=agents))
    actor = Vector(agents, time_horizon, list(first), produced=sum(first))
    allowance, limit = step_allowance(agents, time_horizon), buffer_steps + 1
    granted, trained, turns = 0, 0, 0
    for moment in range(6 * (time_horizon + buffer_steps)):
        granted = grant(Common(limit, actor.received - trained, 0, 1), Share(actor.received, allowance, granted))
        assert granted - trained <= limit + allowance
        if actor.produced + agents <= granted:
            actor.step()
        else:
            assert actor.received - trained >= buffer_steps
        if actor.received - trained >= buffer_steps and moment % patience == 0:
            trained, turns = actor.received, turns + 1
    assert turns > 0


def test_the_allowance_is_a_segment_and_a_step_of_each_agent() -> None:
    """An allowance is time_horizon + 1 steps of each agent, and of one agent at least."""
    assert (step_allowance(3, 5), step_allowance(0, 5)) == (18, 6)


def test_sessions_get_equal_shares() -> None:
    """Free space is divided equally among sessions."""
    common = Common(limit=103, unsettled=20, reserved=0, sessions=4)
    granted = grant(common, Share(0, 10, 0))
    assert (granted, type(granted)) == (10 + 20, int)


def test_room_that_others_reserved_is_not_granted_again() -> None:
    """A session's share is at most what is free."""
    common = Common(limit=100, unsettled=20, reserved=75, sessions=4)
    assert grant(common, Share(0, 10, 0)) == 10 + 5


def test_small_growth_waits_for_an_ack() -> None:
    """A grant alone is sent only to sessions without reserve or after a quarter of a fair share."""
    assert is_worth_sending(Common(100, 0, 99, 1), Share(0, 10, 10))  # one step, without reserve
    assert is_worth_sending(Common(103, 0, 78, 1), Share(0, 10, 80))
    assert not is_worth_sending(Common(103, 0, 79, 1), Share(0, 10, 80))
    assert is_worth_sending(Common(4, 0, 3, 1), Share(0, 10, 11))
    many = Common(limit=100, unsettled=0, reserved=99, sessions=2)
    assert is_worth_sending(many, Share(0, 10, 10)), "one step is worth a message to a session without reserve"
    assert not is_worth_sending(many, Share(0, 10, 11))


def test_grants_stay_within_the_wire() -> None:
    """Absurd counters give a grant within the message's range."""
    assert grant(Common(2**80, 0, 0, 1), Share(2**70, 10, 0)) == MAX_GRANT
