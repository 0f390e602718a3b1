"""Tests that untrusted text is made safe and short."""

import pytest
from rollcast import text


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
    """Control characters, direction marks and surrogates are escaped; letters of any script stay."""
    assert text.printable(given) == shown
    assert text.printable(given).isprintable()


def test_long_text_is_cut() -> None:
    """A text over the limit ends in an ellipsis."""
    assert text.printable("x" * 1000, 10) == "x" * 9 + "…"
    assert text.printable("x" * 10, 10) == "x" * 10


class SpeechlessError(Exception):
    """An error whose message raises."""

    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("one\n  two"), "ValueError: one two"),
        (SpeechlessError(), "SpeechlessError: its message cannot be formatted (SystemExit)"),
        (ValueError("long " * 10_000), f"ValueError: {'long ' * 57}lo…"),
        (ValueError("\x1b[2Jgone"), "ValueError: \\x1b[2Jgone"),
        (OSError("no file \udcff"), "OSError: no file \\udcff"),
    ],
)
def test_any_error_can_be_told(error: Exception, told: str) -> None:
    """Any error is described in one printable line."""
    assert text.in_one_line(error) == told
