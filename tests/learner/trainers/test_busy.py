"""How much of its time a thread works."""

from __future__ import annotations

import contextlib

from learner.trainers.busy import BusyClock


def test_what_is_not_waited_is_work() -> None:
    """Waits are left out, the one that goes on too; a turn that goes on counts while it goes on."""
    now = [10.0]
    clock = BusyClock(lambda: now[0])
    now[0] = 13.0
    assert clock.busy_seconds == 3.0
    with clock.waiting():
        now[0] = 20.0
        assert clock.busy_seconds == 3.0
    now[0] = 21.5
    assert clock.busy_seconds == 4.5


def test_a_wait_that_raises_ends_too() -> None:
    """Whatever ends a wait, work goes on after it."""
    now = [0.0]
    clock = BusyClock(lambda: now[0])
    with contextlib.suppress(KeyError), clock.waiting():
        now[0] = 1.0
        raise KeyError
    now[0] = 3.0
    assert clock.busy_seconds == 2.0
