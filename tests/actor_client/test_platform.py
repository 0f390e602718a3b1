"""How processes ended, in words."""

from __future__ import annotations

import signal

import pytest

from actor_client.platform import describe_exit, stop_signal_numbers


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with exit code 0"),
        (137, "ended with exit code 137"),
        (3221225477, "ended with exit code 3221225477"),
        (-9, "was ended by SIGKILL (killed)"),
        (-11, "was ended by SIGSEGV (segmentation fault)"),
        (-40, "was ended by signal 40"),
        (-4000, "was ended by signal 4000"),
    ],
)
def test_exits_in_words(code: int, words: str) -> None:
    """Codes as numbers, signals by name where they have one."""
    assert describe_exit(code) == words


def test_a_closed_terminal_is_no_signal_behind_nohup() -> None:
    """Who was told to ignore it goes on to."""
    assert signal.SIGHUP in stop_signal_numbers()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in stop_signal_numbers()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert {signal.SIGINT, signal.SIGTERM} <= set(stop_signal_numbers())
