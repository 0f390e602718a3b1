"""Tests `serve --restarts` with real processes in place of learners."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learner.cli import build_parser
from learner.common.exits import ExitCode

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
folder, codes = Path(sys.argv[1]), json.loads(sys.argv[2])
starts = folder / "starts"
starts.write_text((starts.read_text() if starts.exists() else "") + json.dumps(sys.argv[3:]) + "\\n")
code = codes[len(starts.read_text().splitlines()) - 1]
if code == "wait":
    got = []
    signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    (folder / "waits").touch()
    while not got:
        time.sleep(0.01)
    (folder / "ended").touch()
    sys.exit(0)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
SUPERVISOR = """
import sys
from learner.commands.restarting import supervise
words = frozenset({"auto", "true", "false"})
program = (sys.executable, "-c", sys.argv[1], sys.argv[2], sys.argv[3])
wait, code = float(sys.argv[5]), int(sys.argv[6])
given = {"resume_words": words, "program": program, "first_wait_seconds": wait, "stopped_code": code}
sys.exit(supervise(sys.argv[7:], int(sys.argv[4]), **given))
"""
STOPPED = 143
LONG_SECONDS = 900.0
"""Longer than any test may take."""


def start(
    folder: Path, codes: list[object], restarts: int, *arguments: str, wait: float = 0.01
) -> subprocess.Popen[bytes]:
    """Starts a supervisor of a program that ends with one code after the other."""
    line = [SUPERVISOR, PROGRAM, str(folder), json.dumps(codes), str(restarts), str(wait), str(STOPPED)]
    command = [sys.executable, "-c", *line, *arguments]
    with (folder / "said").open("w") as said:
        return subprocess.Popen(command, stderr=said)


def starts(folder: Path) -> list[list[str]]:
    """Returns the arguments of each start."""
    return [json.loads(line) for line in (folder / "starts").read_text().splitlines()]


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
def test_what_is_started_again(tmp_path: Path, codes: list[object], restarts: int, code: int, number: int) -> None:
    """The learner starts again after failures of device and memory and after kills, and after nothing else."""
    assert start(tmp_path, codes, restarts).wait(60) == code
    assert len(starts(tmp_path)) == number


def test_a_restart_resumes_the_run(tmp_path: Path) -> None:
    """The first start has the given arguments; the next ones resume, whatever began the run."""
    given = ["serve", "run.yaml", "--restarts", "2", "--force", "--resume", "true", "--seed=1", "--set", "a.b=--force"]
    process = start(tmp_path, [44, 44, 0], 2, *given)
    assert process.wait(60) == 0
    first = ["serve", "run.yaml", "--force", "--resume", "true", "--seed=1", "--set", "a.b=--force"]
    again = ["serve", "run.yaml", "--seed=1", "--set", "a.b=--force", "--resume=auto"]
    assert starts(tmp_path) == [first, again, again]
    assert "restart 2 of 2 in 0.02 s: the learner ended with code 44" in (tmp_path / "said").read_text()


def test_a_signal_reaches_the_learner(tmp_path: Path) -> None:
    """SIGTERM lets the learner end by itself, and it is not started again."""
    process = start(tmp_path, ["wait", 0], 5)
    until = time.monotonic() + 60
    while not (tmp_path / "waits").exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == 0
    assert len(starts(tmp_path)) == 1


def test_a_signal_between_two_starts(tmp_path: Path) -> None:
    """SIGTERM during the wait for a restart ends with the code for a stopped run, since the run is neither over nor failed."""
    process = start(tmp_path, [44, 0], 5, wait=LONG_SECONDS)
    until = time.monotonic() + 60
    while "restart 1 of 5" not in (tmp_path / "said").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60) == STOPPED
    assert len(starts(tmp_path)) == 1


def test_the_learner_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    """A learner whose supervisor was killed is asked to stop."""
    process = start(tmp_path, ["wait", 0], 5)
    until = time.monotonic() + 60
    while not (tmp_path / "waits").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.wait(60)
    while not (tmp_path / "ended").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert (tmp_path / "ended").exists()


def test_the_number_is_checked() -> None:
    """A negative number of restarts is refused; without the flag nothing is restarted."""
    assert build_parser().parse_args(["serve"]).restarts == 0
    for word in ("-1", "x"):
        with pytest.raises(Exception, match="restarts") as caught:
            build_parser().parse_args(["serve", "--restarts", word])
        assert getattr(caught.value, "exit_code", None) == ExitCode.USAGE
