"""The little bars of the return."""

import math

import pytest

from learner.observe.panel import BARS, History, sparkline


def test_bars_span_the_range() -> None:
    """The lowest point is the lowest bar and the highest the highest."""
    assert sparkline((0.0, 1.0)) == BARS[0] + BARS[-1]
    assert sparkline(tuple(float(i) for i in range(8))) == BARS


def test_bars_of_nothing_and_of_a_constant() -> None:
    """Nothing draws nothing; a constant draws a flat line."""
    assert sparkline(()) == ""
    assert sparkline((3.0, 3.0)) == BARS[0] * 2


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 1000, 4097])
def test_a_history_of_any_length_fits_and_keeps_its_shape(count: int) -> None:
    """However many values come, the points stay within the capacity and a rising run stays a rising line."""
    history = History(8)
    for value in range(count):
        history.add(float(value))
    points = history.points
    assert 1 <= len(points) <= 8
    assert list(points) == sorted(points)
    assert points[-1] >= (count - 1) / 2


def test_points_are_means_of_equal_shares() -> None:
    """After merging, each full point is the mean of as many consecutive values as every other."""
    history = History(4)
    for value in range(8):
        history.add(float(value))
    assert history.points == (1.5, 5.5)


def test_what_is_not_finite_is_left_out() -> None:
    """NaN draws no bar."""
    history = History()
    history.add(math.nan)
    assert history.points == ()


@pytest.mark.parametrize("capacity", [0, 3, -2])
def test_capacity_must_be_even(capacity: int) -> None:
    """Neighbours merge in pairs."""
    with pytest.raises(ValueError, match=f"got {capacity}"):
        History(capacity)
