"""Tests how numbers are read from text."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from learner.shared.settings.base import to_bytes, to_real, to_whole


@pytest.mark.parametrize(
    ("written", "expected"),
    [(7, 7), (5e5, 500000), ("5e5", 500000), ("3.0", 3), ("-3", -3), ("12345678901234567", 12345678901234567)],
)
def test_whole_numbers_are_read(written: object, expected: int) -> None:
    """A whole number may be a float or text."""
    assert expected == to_whole(written)


@pytest.mark.parametrize(("written", "expected"), [("3e-4", 3e-4), (1, 1), (0.5, 0.5), (" 2 ", 2.0)])
def test_numbers_are_read_from_text(written: object, expected: float) -> None:
    """Text such as 3e-4 (YAML 1.1) is read as a number."""
    assert expected == to_real(written)


@pytest.mark.parametrize(
    "written", [True, "many", None, [1], float("nan"), float("inf"), "1e999", "", "9" * 5000, 10**30, "-1e30", "--5"]
)
def test_what_is_no_finite_number_is_refused(written: object) -> None:
    """Booleans, words and infinities are refused."""
    with pytest.raises(PydanticCustomError, match=r"finite number|64 bits"):
        to_whole(written)


@pytest.mark.parametrize("written", [64.5, "64.5", -0.5, "1.5e0"])
def test_a_fraction_is_no_whole_number(written: object) -> None:
    """Half a unit of a layer is refused, not rounded in silence."""
    with pytest.raises(PydanticCustomError, match="must be a whole number"):
        to_whole(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [(4096, 4096), ("256 MiB", 256 * 2**20), ("1KiB", 1024), ("1.5 GB", 1_500_000_000), ("77", 77), ("10 B", 10)],
)
def test_sizes_may_have_a_unit(written: object, expected: int) -> None:
    """A size is a number of bytes, or a number and a unit."""
    assert expected == to_bytes(written)


@pytest.mark.parametrize("written", ["big", "3 parsecs", "MiB", "--3 MiB", True, "10.5", "10.5 B", 10.5])
def test_what_is_no_size_is_refused(written: object) -> None:
    """Text without a number, and unknown units, are refused with an example."""
    with pytest.raises(PydanticCustomError, match=r"256 MiB|finite number|whole number"):
        to_bytes(written)
