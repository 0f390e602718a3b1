"""Tests text and numbers for display."""

import math

import pytest

from learner.observe import text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00:00"), (59.9, "0:00:59"), (3661, "1:01:01"), (360_000, "100:00:00"), (math.inf, "-"), (-1, "-")],
)
def test_duration(seconds: float, shown: str) -> None:
    """Hours are not wrapped into days, and an invalid duration is a dash."""
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3_250_586, "3.1 MiB")])
def test_size(count: int, shown: str) -> None:
    """A size has the largest binary unit with a number of at least one."""
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0.0, "0.00"),
        (2.3e-7, "2.3e-07"),
        (-0.5, "-0.50"),
        (475, "475.0"),
        (-12345.6, "-12,346"),
    ],
)
def test_number(value: float | None, shown: str) -> None:
    """A number has about three significant digits."""
    assert text.number(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (3.21, "3.2"), (4123.7, "4,124"), (math.inf, "-")])
def test_speed(value: float, shown: str) -> None:
    """A rate below ten has one decimal."""
    assert text.speed(value) == shown
