"""Tests the replacement of NaN and infinity."""

import numpy as np
from rollcast.unity.finite import FaultyRows, zero_what_is_not_finite


def test_only_what_is_not_finite_is_replaced() -> None:
    """Faulty rows are reported, and their other values stay; finite values report no rows."""
    values = np.array([[1.0, 2.0], [np.nan, 3.0], [3e38, 3e38], [-np.inf, np.inf]], np.float32)
    rows = zero_what_is_not_finite(values)
    assert rows is not None
    assert rows.tolist() == [False, True, False, True]
    assert values[:2].tolist() == [[1.0, 2.0], [0.0, 3.0]]
    assert values[3].tolist() == [0.0, 0.0]
    assert zero_what_is_not_finite(np.ones((3, 2), np.float32)) is None
    assert zero_what_is_not_finite(np.ones((0, 2), np.float32)) is None


def test_lines_become_rare() -> None:
    """Faulty rows are logged at the first one and at each doubling."""
    rows, counter = np.array([False, True]), FaultyRows()
    lines = [counter.line(np.array([3, 5]), {"the reward": rows}) for _ in range(1000)]
    told = [line for line in lines if line is not None]
    assert len(told) == 10
    assert told[0].startswith("NaN or infinity in the reward of agent 5 (1 rows so far)")
    assert "(512 rows so far)" in told[-1]
