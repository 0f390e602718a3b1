"""Tests the comparison of two checkouts."""

from __future__ import annotations

import pytest

from tests.tools.bench.cpu_table import compare, comparisons, render
from tests.tools.bench.learner_cpu import CPU_SECONDS, UPDATES
from tests.tools.bench.measurement import STEPS_PER_SECOND, Figures, Series


def _series(name: str, *seconds: float | None) -> Series:
    """Returns one round a value; a round without one failed."""
    rounds = [
        Figures({CPU_SECONDS: value, UPDATES: 24.0, STEPS_PER_SECOND: 1000.0}, round_index=index)
        for index, value in enumerate(seconds)
        if value is not None
    ]
    return Series(name, name, rounds)


def test_a_ratio_is_the_others_seconds_over_ours() -> None:
    """Ratios are those of the medians and those of each pair."""
    ours, theirs = _series("a", 1.0, 2.0, 2.0), _series("b", 0.9, 0.9, 1.8)
    found = compare(ours, theirs, CPU_SECONDS)
    assert found is not None
    assert found.of_medians == pytest.approx(0.45)
    assert found.of_pairs is not None
    assert found.of_pairs.median == pytest.approx(0.9)
    assert (found.of_pairs.lowest, found.of_pairs.highest, found.of_pairs.count) == pytest.approx((0.45, 0.9, 3))


def test_only_rounds_of_both_sides_are_pairs() -> None:
    """A failed round on one side does not shift the later pairs."""
    found = compare(_series("a", 1.0, None, 4.0), _series("b", 2.0, 5.0, 8.0), CPU_SECONDS)
    assert found is not None
    assert found.of_pairs is not None
    assert (found.of_pairs.median, found.of_pairs.count) == (2.0, 2)
    apart = compare(_series("a", 1.0, None), _series("b", None, 3.0), CPU_SECONDS)
    assert apart is not None
    assert (apart.of_medians, apart.of_pairs) == (3.0, None)
    assert compare(_series("a", 1.0), _series("b", None), CPU_SECONDS) is None


def test_the_table_has_both_sides_and_their_updates() -> None:
    """A row of one side has no ratio, and without a second side the table has speeds."""
    ours = {"cartpole-fast": _series("cartpole-fast", 1.25, 1.35, 1.30)}
    pair = ours | {"cartpole-fast-against": _series("cartpole-fast-against", 1.17, 1.30, 1.17)}
    text = render(pair)
    assert "1.30 (1.25-1.35)" in text
    assert "24.0 / 24.0" in text
    assert "0.900 x" in text
    assert "0.936 (0.900-0.963)" in text
    assert comparisons(pair)["cartpole-fast"]["of_medians"] == pytest.approx(0.9)
    assert comparisons(ours) == {}
    assert "24.0            1,000" in render(ours)
    assert "speed" not in render(ours)
