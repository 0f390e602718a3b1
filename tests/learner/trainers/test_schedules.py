"""Scheduled values."""

from __future__ import annotations

import pytest

from learner.trainers.schedules import BETA_FLOOR, EPSILON_FLOOR, ScheduledValue


def test_a_linear_value_ends_at_its_floor() -> None:
    """Half way there it is half way down; beyond the end it stays at the floor."""
    epsilon = ScheduledValue("linear", 0.2, EPSILON_FLOOR, 1000)
    assert [epsilon.at(step) for step in (0, 500, 1000, 5000)] == pytest.approx([0.2, 0.15, 0.1, 0.1])


def test_a_constant_value_stays() -> None:
    """A constant schedule knows no floor."""
    assert ScheduledValue("constant", 0.05, EPSILON_FLOOR, 10).at(10) == 0.05


def test_a_value_below_its_floor_stays() -> None:
    """No schedule raises a value; beta 0 stays off."""
    assert ScheduledValue("linear", 0.0, BETA_FLOOR, 10).at(7) == 0.0
