"""Tests how an actor says why it ends."""

import pytest
from rollcast.text import MAX_ERROR_CHARS

from actor_client.endings import say_end
from actor_client.exits import ActorError, ExitCode


def test_an_error_of_a_learner_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A hostile learner's list of behaviors moves no cursor, forges no line, and fills no terminal."""
    behaviors = ", ".join(["\x1b]0;title\x07\nerror: forged"] * 50_000)
    error = ActorError(ExitCode.USAGE, f"run h has the behaviors {behaviors}")
    assert say_end(error, "console") is ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith("error: run h has the behaviors \\x1b]0;title\\x07\\nerror: forged, ")
    assert said.endswith(f"… (exit code {ExitCode.USAGE.value})\n")
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()
    assert len(said) < 2 * MAX_ERROR_CHARS
