"""Implements ``--restarts``: starts a learner or a trainer again after a failure that another start may not have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Final

from rollcast.signals import end_with_parent, stop_signal_numbers, until

from learner.shared.exits import ExitCode
from learner.shared.platform import operator_signal_numbers, same_modules

FIRST_WAIT_SECONDS: Final = 1.0
LONGEST_WAIT_SECONDS: Final = 60.0
"""The wait doubles with each restart; drivers need some time after a failure."""
_AGAIN: Final = frozenset({ExitCode.DEVICE_FAILED, ExitCode.OUT_OF_MEMORY, ExitCode.TRAINER_DIED})


def supervise(
    arguments: Sequence[str],
    restarts: int,
    *,
    resume_words: frozenset[str] | None = None,
    again: frozenset[int] = _AGAIN,
    who: str = "the learner",
    stopped_code: int = ExitCode.OK,
    program: Sequence[str] = (sys.executable, "-m", "learner"),
    first_wait_seconds: float = FIRST_WAIT_SECONDS,
) -> int:
    """Runs a command in a process of its own until it ends for good, and returns its exit code.

    A learner is started again, resuming its run, if its device failed, memory ran out, or a signal that was not sent here
    killed it, as the system does when memory runs out. Signals to stop and of operators are passed on; if this process is killed,
    the learner stops, too (on Linux).

    A learner whose run folder was taken over by a later one has the exit code 0 here: it must not be started again, and the
    restart policies of container engines know no codes but 0.

    Args:
        arguments: Arguments of the command line, from the name of the command on.
        restarts: Most restarts.
        resume_words: Words that may follow ``--resume``; None for a command without it.
        again: Exit codes after which it is started again.
        who: What it is called.
        stopped_code: Exit code if a signal to stop comes before a restart; 0 for that of the last failure.
        program: Command to which the arguments are added.
        first_wait_seconds: Time before the first restart.
    """
    given, child = _without(arguments, "--restarts", lambda _: True), _Child()
    for number in (*stop_signal_numbers(), *operator_signal_numbers()):
        signal.signal(number, child.pass_on)
    for done in range(restarts + 1):
        code = child.run([*program, *given])
        if child.is_stopping or not (code < 0 or code in again) or done == restarts:
            break
        seconds = min(LONGEST_WAIT_SECONDS, first_wait_seconds * 2.0**done)
        how = f"signal {-code}" if code < 0 else f"code {code}"
        sys.stderr.write(f"restart {done + 1} of {restarts} in {seconds:g} s: {who} ended with {how}\n")
        if child.stops_within(seconds):
            code = stopped_code or code
            break
        if resume_words is not None:
            kept = _without(given, "--force", lambda _: False)
            given = [*_without(kept, "--resume", resume_words.__contains__), "--resume=auto"]
    if code == ExitCode.SUPERSEDED:
        return ExitCode.OK
    return code if code >= 0 else 128 - code


class _Child:
    """The learner's process, which gets the signals of this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()

    @property
    def is_stopping(self) -> bool:
        """True once a signal asked the learner to stop."""
        return self._stop.is_set()

    def run(self, command: Sequence[str]) -> int:
        """Runs a command and returns its exit code; that of a killed process is the negative number of the signal."""
        # A session of its own: Ctrl-C in a terminal would reach it twice, and twice means to hurry.
        with subprocess.Popen(  # noqa: S603 - this program and the own arguments
            command,
            env={**os.environ, **same_modules()},
            start_new_session=True,
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - this process has one thread
        ) as process:
            self._process = process
            until(partial(_has_ended, process))
        self._process = None
        return process.returncode

    def stops_within(self, seconds: float) -> bool:
        """Waits; returns whether a signal to stop came."""
        return self._stop.wait(seconds)

    def pass_on(self, number: int, _frame: FrameType | None) -> None:
        """Passes a signal on to the learner."""
        if number in stop_signal_numbers():
            self._stop.set()
        if self._process is not None and sys.platform != "win32":  # there, a console's Ctrl-C reaches both
            self._process.send_signal(number)


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _without(arguments: Sequence[str], flag: str, has_value: Callable[[str], bool]) -> list[str]:
    """Returns the arguments without a flag and the value that follows it or is part of it."""
    kept: list[str] = []
    is_value = False
    for word in arguments:
        if is_value and has_value(word):
            is_value = False
            continue
        is_value = word == flag
        if word != flag and not word.startswith(f"{flag}="):
            kept.append(word)
    return kept
