"""When recovery checkpoints are due."""

from __future__ import annotations

import pytest

from learner.checkpoints.store import RecoverySchedule


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Reads the clock."""
        return self.now


def due_times(schedule: RecoverySchedule, clock: Clock, until_seconds: float) -> list[float]:
    """Runs an update each 0.25 s and saves when due; returns when that was, in seconds from the start."""
    start, updates, times = clock.now, 0, []
    while clock.now - start < until_seconds:
        updates += 1
        if schedule.is_due(updates=updates):
            times.append(clock.now - start)
            schedule.saved(updates=updates)
        clock.now += 0.25
    return times


def test_intervals_double_up_to_the_setting() -> None:
    """Saved after the first update, then after 1, 2, 4 ... seconds, never more than `checkpoint_seconds` apart."""
    clock = Clock()
    times = due_times(RecoverySchedule(10.0, clock=clock), clock, 50.0)
    assert times == [0.0, 1.0, 3.0, 7.0, 15.0, 25.0, 35.0, 45.0]


def test_nothing_is_saved_without_an_update() -> None:
    """Before the first update, and while nothing is trained, nothing is due."""
    clock = Clock()
    schedule = RecoverySchedule(10.0, clock=clock)
    assert not schedule.is_due(updates=0)
    assert schedule.is_due(updates=1)
    schedule.saved(updates=1)
    clock.now += 1000.0
    assert not schedule.is_due(updates=1)
    assert schedule.is_due(updates=2)


def test_a_failed_save_is_tried_again_and_not_at_once() -> None:
    """After a failure the present interval passes first, and it does not grow."""
    clock = Clock()
    schedule = RecoverySchedule(60.0, clock=clock)
    assert schedule.is_due(updates=1)
    schedule.failed()
    assert not schedule.is_due(updates=2)
    clock.now += 1.0
    assert schedule.is_due(updates=2)


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_short_settings_are_kept_to(seconds: float) -> None:
    """A setting below one second is the interval from the start."""
    clock = Clock()
    schedule = RecoverySchedule(seconds, clock=clock)
    schedule.saved(updates=1)
    clock.now += seconds + 0.01
    assert schedule.is_due(updates=2)
