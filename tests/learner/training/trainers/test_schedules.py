"""Tests scheduled values."""

from __future__ import annotations

import pytest

from learner.shared.settings.base import Schedule
from learner.training.trainers.schedules import BETA_FLOOR, EPSILON_FLOOR, ScheduledValue


def test_a_linear_value_ends_at_its_floor() -> None:
    """A linear value falls linearly to its minimum and stays there."""
    epsilon = ScheduledValue("linear", 0.2, EPSILON_FLOOR, 1000)
    assert [epsilon.at(step) for step in (0, 500, 1000, 5000)] == pytest.approx([0.2, 0.15, 0.1, 0.1])


def test_a_constant_value_stays() -> None:
    """A constant value does not change."""
    assert ScheduledValue("constant", 0.05, EPSILON_FLOOR, 10).at(10) == 0.05


def test_a_cosine_value_falls_slowly_at_first_and_at_last() -> None:
    """It starts at the value, is halfway at half the steps, and ends at the floor."""
    rate = ScheduledValue("cosine", 1.1, 0.1, 1000)
    assert [rate.at(step) for step in (0, 250, 500, 750, 1000, 5000)] == pytest.approx(
        [1.1, 0.6 + 0.5 * 0.5**0.5, 0.6, 0.6 - 0.5 * 0.5**0.5, 0.1, 0.1]
    )


@pytest.mark.parametrize(("kind", "expected"), [("constant", [0, 0.5, 1, 1]), ("linear", [0, 0.475, 0.9, 0.5])])
def test_a_warm_up_rises_to_the_schedule(kind: Schedule, expected: list[float]) -> None:
    """The value is the schedule's times the share of the warm-up that is over."""
    rate = ScheduledValue(kind, 1.0, 1e-10, 1000, warmup_steps=100)
    assert [rate.at(step) for step in (0, 50, 100, 500)] == pytest.approx(expected)


def test_a_value_below_its_floor_stays() -> None:
    """A value below its minimum does not change."""
    assert ScheduledValue("linear", 0.0, BETA_FLOOR, 10).at(7) == 0.0
