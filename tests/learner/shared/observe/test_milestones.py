"""Tests first step and target of a behavior."""

import pytest

from learner.shared.observe.milestones import Milestones
from tests.clock import Clock


def test_time_counts_from_the_first_step() -> None:
    """Time counts from the first step, and the target is timed from there."""
    clock = Clock()
    milestones = Milestones(clock)
    clock.now += 1000
    milestones.note_steps(0)
    assert milestones.wall_seconds == 0
    milestones.note_steps(8)
    clock.now += 30
    milestones.note_steps(90_000)
    assert milestones.note_target()
    clock.now += 5
    milestones.note_steps(95_000)
    assert not milestones.note_target(), "only the first time counts"
    assert (milestones.seconds_to_target, milestones.env_steps_to_target) == (30, 90_000)
    assert (milestones.wall_seconds, milestones.env_steps_taken) == (35, 95_000)


def test_only_active_time_is_active() -> None:
    """Time before the first step, in pauses and without actors is not active."""
    clock = Clock()
    milestones = Milestones(clock)
    for seconds, steps, is_idle in ((5, 0, False), (1, 8, False), (2, 20, False), (60, 20, True), (3, 40, False)):
        clock.now += seconds
        milestones.note_steps(steps)
        milestones.note_activity(is_idle=is_idle)
    assert (milestones.wall_seconds, milestones.active_seconds) == (65, 5)
    later = Milestones(clock)
    later.load_state_dict(milestones.state_dict())
    later.note_activity(is_idle=False)
    clock.now += 7
    later.note_steps(41)
    later.note_activity(is_idle=False)
    clock.now += 4
    later.note_activity(is_idle=False)
    assert (later.wall_seconds, later.active_seconds) == (69, 9)


def test_a_resumed_run_goes_on_where_it_was() -> None:
    """A resumed run continues time and steps without the time in between."""
    clock = Clock()
    earlier = Milestones(clock)
    earlier.note_steps(10)
    clock.now += 20
    earlier.note_steps(5000)
    state = earlier.state_dict()
    clock.now += 3600
    later = Milestones(clock)
    later.load_state_dict(state)
    later.note_steps(5000)
    clock.now += 60
    assert later.wall_seconds == 20
    later.note_steps(5001)
    clock.now += 7
    assert later.note_target()
    assert (later.wall_seconds, later.seconds_to_target, later.env_steps_to_target) == (27, 27, 5001)
    again = Milestones(clock)
    again.load_state_dict(later.state_dict())
    assert not again.note_target()
    assert again.state_dict() == later.state_dict()


@pytest.mark.parametrize("target", [495.0, None])
def test_another_target_is_not_reached_yet(target: float | None) -> None:
    """A resumed run with another target has not reached it yet."""
    clock = Clock()
    earlier = Milestones(clock, target_return=475.0)
    earlier.note_steps(10)
    earlier.note_target()
    state = earlier.state_dict()
    raised = Milestones(clock, target_return=target)
    raised.load_state_dict(state)
    assert (raised.seconds_to_target, raised.env_steps_to_target) == (None, None)
    raised.note_steps(20)
    assert raised.note_target()
    assert raised.env_steps_to_target == 20
    same = Milestones(clock, target_return=475.0)
    same.load_state_dict(state)
    assert same.env_steps_to_target == 10


@pytest.mark.parametrize(
    "state",
    [
        {"wall_seconds": "long"},
        {"wall_seconds": float("nan")},
        {"seconds_to_target": -1.0},
        {"active_seconds": -1.0},
        {"env_steps_taken": 1.5},
        {"env_steps_to_target": True},
        {"target_return": "high"},
    ],
)
def test_a_state_that_makes_no_sense_is_refused(state: dict[str, object]) -> None:
    """An invalid saved value is named in the error."""
    milestones = Milestones(Clock())
    milestones.note_target()
    with pytest.raises(ValueError, match=next(iter(state))):
        Milestones(Clock()).load_state_dict({**milestones.state_dict(), **state})
