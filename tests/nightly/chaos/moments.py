"""Checks the books of a run at one moment, while it trains amid faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from learner.shared.exits import ExitCode
from tests.e2e.books import check_books
from tests.e2e.state import told
from tests.nightly.chaos.checker.check import check_folder
from tests.nightly.chaos.checker.violations import report

COMMAND_SECONDS = 120.0


def check_status_command(control: str, token: Path) -> bool:
    """Checks the books that `rollcast status` prints; returns whether the learner answered.

    Raises:
        AssertionError: They do not balance, or the command failed in another way than for a learner that is down.
    """
    words = ("status", "--json", "--control", control, "--token-file", str(token))
    done = subprocess.run(
        [sys.executable, "-m", "rollcast", *words], capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS
    )
    if done.returncode == ExitCode.UNREACHABLE:
        return False
    assert done.returncode == ExitCode.OK, done.stderr
    check_books(told(done.stdout))
    return True


def check_histories(histories: Path, max_lags: Mapping[str, int], pids: Iterable[int]) -> None:
    """Checks the histories of one moment: no process runs while they are copied.

    Each process writes a line before its effect is visible, so whatever one has seen of another is in the copy.

    Args:
        histories: Their folder.
        max_lags: As for the checker.
        pids: All processes that run and write.

    Raises:
        AssertionError: The checker found something.
    """
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "histories"
        with _stopped(pids):
            shutil.copytree(histories, copy)
        violations = check_folder(copy, max_lags)
        assert not violations, report(violations)


@contextlib.contextmanager
def _stopped(pids: Iterable[int]) -> Iterator[None]:
    """Stops processes; one that has just ended does not matter."""
    stopped = []
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        yield
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
