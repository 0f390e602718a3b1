"""Text and numbers as people see them."""

import math

import pytest

from learner.observe import text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("CartPole", "CartPole"),
        ("Läufer ✓", "Läufer ✓"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("one\ntwo\r", "one\\ntwo\\r"),
        ("right\u202eleft", "right\\u202eleft"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_that_a_terminal_obeys_gets_through(given: str, shown: str) -> None:
    """Control characters, direction marks and lone surrogates become escapes; letters of any script stay."""
    assert text.printable(given) == shown
    assert text.printable(given).isprintable()


def test_long_text_is_cut() -> None:
    """A text over the limit ends in an ellipsis at the limit."""
    assert text.printable("x" * 1000, 10) == "x" * 9 + "…"
    assert text.printable("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00:00"), (59.9, "0:00:59"), (3661, "1:01:01"), (360_000, "100:00:00"), (math.inf, "-"), (-1, "-")],
)
def test_duration(seconds: float, shown: str) -> None:
    """Hours are not wrapped into days; what is no duration is a dash."""
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3_250_586, "3.1 MiB")])
def test_size(count: int, shown: str) -> None:
    """Sizes take the largest binary unit that leaves a number of at least one."""
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
    """Numbers keep about three digits that matter."""
    assert text.number(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (3.21, "3.2"), (4123.7, "4,124"), (math.inf, "-")])
def test_speed(value: float, shown: str) -> None:
    """Rates show a digit after the point only below ten."""
    assert text.speed(value) == shown
