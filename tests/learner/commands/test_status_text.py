"""Tests `status --watch` in a terminal and in a pipe."""

from __future__ import annotations

import io

import pytest

from learner.cli import main
from learner.commands.status_text import watch
from learner.common.exits import ExitCode


class Output(io.StringIO):
    """What is written to a pipe, or to a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Returns whether it is a terminal."""
        return self._is_terminal


def watched(*, is_terminal: bool) -> str:
    """Watches two texts, of four lines and of many, until Ctrl-C, and returns the output."""
    rows = iter((2, 60))

    def read() -> str:
        count = next(rows, None)
        if count is None:
            raise KeyboardInterrupt
        return f"look {count} " + "x" * 100 + "\nsecond\n" + "\n".join(f"line {row}" for row in range(count))

    output = Output(is_terminal=is_terminal)
    watch(read, 0.0, output)
    return output.getvalue()


def test_a_pipe_gets_one_block_after_another() -> None:
    """A pipe gets blocks without control characters."""
    text = watched(is_terminal=False)
    assert "\x1b" not in text
    assert text.startswith("look 2 " + "x" * 100 + "\nsecond\nline 0\nline 1\n\nlook 60 ")


def test_a_terminal_is_drawn_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal each update starts at the top, fits the screen and clears old lines."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    text = watched(is_terminal=True)
    first, second = text.split("\x1b[H")[1:]
    assert text.startswith("\x1b[2J\x1b[H")
    assert first.split("\x1b[K\n")[:3] == ["look 2 " + "x" * 73, "x" * 27, "second"]
    assert first.endswith("line 1\x1b[K\n\x1b[J")
    assert second.removesuffix("\n").count("\n") == 23


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_a_time_that_makes_no_sense_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Too short and too long intervals are refused."""
    assert main(["status", "--control", "127.0.0.1:1", f"--watch={seconds}"]) == ExitCode.USAGE
    assert f"'{seconds}' is not a number of seconds from 0.1 to 3600" in capsys.readouterr().err
