"""Tests text and numbers for display."""

import math
from collections.abc import Callable

import pytest

from learner.shared.observe import text


@pytest.mark.parametrize(
    ("show", "cases"),
    [
        (text.duration, [(59.9, "0:00:59"), (3661, "1:01:01"), (360_000, "100:00:00"), (math.inf, "-"), (-1, "-")]),
        (text.size, [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3_250_586, "3.1 MiB")]),
        (text.number, [(None, "-"), (math.nan, "-"), (0.0, "0.00"), (2.3e-7, "2.3e-07"), (-12345.6, "-12,346")]),
        (text.number, [(-0.5, "-0.50"), (475, "475.0")]),
        (text.speed, [(0, "0"), (3.21, "3.2"), (4123.7, "4,124"), (math.inf, "-")]),
    ],
)
def test_numbers_for_people(show: Callable[..., str], cases: list[tuple[float | None, str]]) -> None:
    """Hours are not wrapped into days, units are binary, numbers have about three digits, and what is invalid is a dash."""
    for value, shown in cases:
        assert show(value) == shown
