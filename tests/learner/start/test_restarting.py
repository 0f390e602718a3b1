"""Tests `serve --restarts`."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from learner.cli import restarting
from learner.cli.cli import build_parser
from learner.cli.restarting import supervise
from learner.shared.exits import ExitCode
from tests.e2e.processes import wait_until

WORDS = frozenset({"auto", "true", "false"})
STOPPED = 143
LONG_SECONDS = 900.0
"""Longer than any test may take."""


class Learners:
    """Stands for the learner's processes, which end with one code after the other.

    Attributes:
        starts: The arguments of each start.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, codes: list[int]) -> None:
        self.starts: list[list[str]] = []
        monkeypatch.setattr(restarting._Child, "run", self._run)
        self._codes = codes

    def _run(self, command: list[str]) -> int:
        self.starts.append(command[1:])
        return self._codes[len(self.starts) - 1]


def run(restarts: int, *arguments: str, wait: float = 0.0) -> int:
    """Supervises a program."""
    return supervise(
        arguments, restarts, resume_words=WORDS, program=["learner"], first_wait_seconds=wait, stopped_code=STOPPED
    )


@pytest.mark.parametrize(
    ("codes", "restarts", "code", "number"),
    [
        ([0], 3, 0, 1),
        ([44, 45, 0], 3, 0, 3),
        ([45, 45, 45], 1, 45, 2),
        ([-int(signal.SIGKILL), 0], 3, 0, 2),
        ([-int(signal.SIGSEGV), -int(signal.SIGSEGV)], 1, 128 + int(signal.SIGSEGV), 2),
        ([40, 0], 3, 40, 1),
        ([11, 0], 3, 11, 1),
        ([44, 16, 0], 3, 0, 2),
    ],
)
def test_what_is_started_again(
    monkeypatch: pytest.MonkeyPatch, codes: list[int], restarts: int, code: int, number: int
) -> None:
    """The learner starts again after failures of device and memory and after kills, and after nothing else."""
    learners = Learners(monkeypatch, codes)
    assert run(restarts) == code
    assert len(learners.starts) == number


def test_a_restart_resumes_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The first start has the given arguments; the next ones resume, whatever began the run."""
    learners = Learners(monkeypatch, [44, 44, 0])
    given = ["serve", "run.yaml", "--restarts", "2", "--force", "--resume", "true", "--seed=1", "--set", "a.b=--force"]
    assert run(2, *given, wait=0.01) == 0
    first = ["serve", "run.yaml", "--force", "--resume", "true", "--seed=1", "--set", "a.b=--force"]
    again = ["serve", "run.yaml", "--seed=1", "--set", "a.b=--force", "--resume=auto"]
    assert learners.starts == [first, again, again]
    assert "restart 2 of 2 in 0.02 s: the learner ended with code 44" in capsys.readouterr().err


def test_a_signal_between_two_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM during the wait for a restart ends with the code for a stopped run, since the run is neither over nor failed."""

    class Said(io.StringIO):
        """Raises the signal when the wait is announced."""

        def write(self, text: str) -> int:
            signal.raise_signal(signal.SIGTERM)
            return super().write(text)

    learners = Learners(monkeypatch, [44, 0])
    monkeypatch.setattr(sys, "stderr", Said())
    assert run(5, wait=LONG_SECONDS) == STOPPED
    assert len(learners.starts) == 1


PROGRAM = """
import signal, sys
from pathlib import Path
folder = Path(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
(folder / "waits").touch()
signal.sigwait({signal.SIGTERM})
(folder / "ended").touch()
"""
SUPERVISOR = """
import sys
from learner.cli.restarting import supervise
sys.exit(supervise([], 5, resume_words=frozenset(), program=[sys.executable, "-c", *sys.argv[1:]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_learner_hears_of_its_supervisor(tmp_path: Path, number: int) -> None:
    """SIGTERM lets the learner end by itself, and it is not started again; a learner whose supervisor was killed stops."""
    process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, PROGRAM, str(tmp_path)])
    wait_until((tmp_path / "waits").exists, "the learner waits")
    os.kill(process.pid, number)
    assert process.wait(300) == (0 if number == signal.SIGTERM else -number)
    wait_until((tmp_path / "ended").exists, "the learner ends")


def test_the_number_is_checked() -> None:
    """A negative number of restarts is refused; without the flag nothing is restarted."""
    assert build_parser().parse_args(["serve"]).restarts == 0
    for word in ("-1", "x"):
        with pytest.raises(Exception, match=f"'{word}' is not a number of restarts: 0 or more") as caught:
            build_parser().parse_args(["serve", "--restarts", word])
        assert getattr(caught.value, "exit_code", None) == ExitCode.USAGE
