"""Tests statistics over seeds against numbers computed by hand."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from learner.shared.seed_statistics import (
    REPLICATES,
    Interval,
    band,
    improvement,
    improvement_interval,
    interquartile_mean,
    iqm,
    iqm_interval,
)


def scores(*values: float) -> NDArray[np.float64]:
    """Returns scores of one task."""
    return np.array(values)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=40))
def test_the_formula_is_that_of_trimmed_means(values: list[int]) -> None:
    """The mean is `scipy.stats.trim_mean(values, 0.25)`, by its formula in whole numbers."""
    cut = len(values) // 4
    kept = sorted(values)[cut : len(values) - cut]
    assert iqm([np.array(values, np.float64)]) == pytest.approx(float(Fraction(sum(kept), len(kept))))


def test_means_are_taken_along_the_last_axis() -> None:
    """Scores of several draws have a mean each."""
    draws = np.array([[4.0, 1.0, 3.0, 2.0], [40.0, 10.0, 30.0, 20.0]])
    assert interquartile_mean(draws).tolist() == [2.5, 25.0]


def exact_quantiles(values: list[float], weights: list[float]) -> tuple[float, float]:
    """Returns the 2.5 % and 97.5 % quantiles of a distribution."""
    order = np.argsort(values)
    mass = np.cumsum(np.array(weights)[order])
    low, high = (np.array(values)[order][np.searchsorted(mass, tail)] for tail in (0.025, 0.975))
    return float(low), float(high)


def test_the_interval_is_that_of_all_draws() -> None:
    """The interval has the quantiles of the means of all 256 equally likely draws of four runs."""
    runs = (1.0, 2.0, 4.0, 8.0)
    means = [sum(sorted(draw)[1:3]) / 2 for draw in product(runs, repeat=4)]
    low, high = exact_quantiles(means, [1 / 256] * 256)
    assert (low, high) == (1.0, 8.0)
    assert iqm_interval([scores(*runs)]) == Interval(low, high)


def test_a_single_run_has_no_interval() -> None:
    """Without a second run of any task, nothing is known about the spread."""
    assert iqm_interval([scores(1.0), scores(2.0)]) is None
    assert iqm_interval([scores(1.0), scores(2.0, 3.0)]) is not None
    assert improvement_interval([scores(1.0)], [scores(2.0)]) is None


def test_the_probability_of_improvement_counts_pairs() -> None:
    """Of the six pairs, 3 > 1, 3 > 2, 2 > 1 are above, and 2 = 2 and 3 = 3 count half."""
    assert improvement([scores(2.0, 3.0)], [scores(1.0, 2.0, 3.0)]) == pytest.approx((3 + 2 * 0.5) / 6)
    assert improvement([scores(1.0)], [scores(1.0)]) == 0.5


def test_the_interval_of_an_improvement_is_that_of_all_draws() -> None:
    """Two runs against one: a draw has the better run zero, one or two times."""
    assert improvement_interval([scores(0.0, 2.0)], [scores(1.0)]) == Interval(0.0, 1.0)
    assert improvement_interval([scores(2.0, 3.0)], [scores(0.0, 1.0)]) == Interval(1.0, 1.0)
    ten = [scores(*range(10))]  # 0 to 9 against 4.5: each draw is better with probability 1/2, ten times
    found = improvement_interval(ten, [scores(4.5)])
    binomial = [math.comb(10, count) / 1024 for count in range(11)]
    assert found == Interval(*exact_quantiles([count / 10 for count in range(11)], binomial))


def test_a_curve_has_a_mean_and_an_interval_at_each_point() -> None:
    """Whole runs are drawn: where runs differ by a constant, the band is that of the constants everywhere."""
    offsets = scores(0.0, 1.0, 3.0, 9.0, 12.0)
    found = band(offsets[:, None] + np.array([0.0, 100.0, 50.0]))
    limits = iqm_interval([offsets])
    assert limits is not None
    assert found.iqm.tolist() == [13 / 3, 100 + 13 / 3, 50 + 13 / 3]
    assert (found.low - [0, 100, 50]).tolist() == pytest.approx([limits.low] * 3)
    assert (found.high - [0, 100, 50]).tolist() == pytest.approx([limits.high] * 3)
    assert REPLICATES >= 2000


def test_the_results_are_those_of_rliable() -> None:
    """Estimates equal those of rliable 1.2.0 for the same scores of two tasks; intervals equal those of 200,000 draws."""
    first = [scores(12, 15, 9, 22, 18, 14, 30) / 20, scores(0.31, 0.42, 0.55, 0.38, 0.61, 0.47, 0.29)]
    other = [scores(11, 16, 8, 13, 10) / 20, scores(0.30, 0.36, 0.44, 0.52, 0.33)]
    assert iqm(first) == pytest.approx(0.56875)
    assert improvement(first, other) == pytest.approx(0.68571429)
    mean, better = iqm_interval(first), improvement_interval(first, other)
    assert mean is not None
    assert better is not None
    assert iqm_interval(first) == mean, "the draws are seeded"
    assert (mean.low, mean.high) == pytest.approx((0.47875, 0.70125), abs=0.005)
    assert (better.low, better.high) == pytest.approx((0.45714286, 0.88571429), abs=0.01)
