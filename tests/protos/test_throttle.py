"""Tests that repeated log lines are limited."""

from __future__ import annotations

import pytest
from rollcast.throttle import MAX_KEYS, Throttle


@pytest.mark.parametrize("interval_seconds", [10.0, float("inf")])
def test_the_first_event_of_a_kind_passes(interval_seconds: float) -> None:
    """An endless interval admits each kind once."""
    throttle = Throttle(interval_seconds, clock=lambda: 0.0)
    assert [throttle.admit("a"), throttle.admit("a"), throttle.admit("b")] == [0, None, 0]


def test_one_event_of_a_kind_passes_in_each_interval() -> None:
    """Events within the interval are counted, and the next one has their number."""
    now = [0.0]
    throttle = Throttle(10.0, clock=lambda: now[0])
    assert throttle.admit("a") == 0
    assert throttle.admit("a") is None
    assert throttle.admit("a") is None
    assert throttle.admit("b") == 0
    now[0] = 10.0
    assert throttle.admit("a") == 2
    assert throttle.admit("a") is None


def test_a_kind_that_is_forgotten_passes_at_once() -> None:
    """The next event of a kind that is forgotten is its first."""
    throttle = Throttle(10.0, clock=lambda: 0.0)
    assert throttle.admit("a") == 0
    assert throttle.admit("a") is None
    throttle.forget("a")
    throttle.forget("never seen")
    assert throttle.admit("a") == 0


def test_it_forgets_old_kinds() -> None:
    """The number of remembered kinds is limited."""
    throttle = Throttle(10.0, clock=lambda: 0.0)
    for kind in range(3 * MAX_KEYS):
        assert throttle.admit(kind) == 0
    assert len(throttle._kinds) == MAX_KEYS
