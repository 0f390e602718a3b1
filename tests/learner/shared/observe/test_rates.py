"""Tests the windowed rate of a counter."""

from __future__ import annotations

import pytest

from learner.shared.observe.rates import WindowedRate
from tests.clock import Clock


def test_rate_looks_back_one_window() -> None:
    """The rate forgets the old pace after one window."""
    clock = Clock()
    rate = WindowedRate(10.0, clock)
    count = 0
    for _ in range(50):
        clock.now += 1
        count += 5
        rate.update(count)
    assert rate.per_second == pytest.approx(5)
    for _ in range(10):
        clock.now += 1
        count += 100
        rate.update(count)
    assert rate.per_second == pytest.approx(100)


def test_rate_needs_two_moments() -> None:
    """One sample, or two at one time, give no rate; a counter that stands still has none after a window."""
    clock = Clock()
    rate = WindowedRate(10.0, clock)
    assert rate.per_second == 0
    rate.update(5)
    assert rate.update(50) == 0
    clock.now += 1
    assert rate.update(60) == pytest.approx(10)
    clock.now += 20
    assert rate.update(60) == 0


def test_a_counter_that_falls_starts_anew() -> None:
    """A falling counter starts again and never gives a negative rate."""
    clock = Clock()
    rate = WindowedRate(10.0, clock)
    rate.update(1000)
    clock.now += 1
    assert rate.update(10) == 0
    clock.now += 1
    assert rate.update(30) == pytest.approx(20)
