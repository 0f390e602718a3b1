"""Tests that children end with everything they started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.bench.processes import Child

STUBBORN_FAMILY = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("child", os.getpid(), flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    """Returns whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_grandchild_that_ignores_sigterm_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole group is ended, by force if needed."""
    monkeypatch.setattr("tests.tools.bench.processes.END_SECONDS", 0.2)
    with Child("family", [sys.executable, "-c", STUBBORN_FAMILY], tmp_path / "log") as child:
        child.wait_until(lambda: "child" in child.log(), "the fork", 30)
        grandchild = int(child.log().split()[1])
        assert is_alive(grandchild)
    deadline = time.monotonic() + 10
    while is_alive(grandchild) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(grandchild)
    assert not is_alive(child.pid)


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path) -> None:
    """The error has the end of the log."""
    command = [sys.executable, "-c", "print('what went wrong'); raise SystemExit(3)"]
    with (
        Child("the thing", command, tmp_path / "log") as child,
        pytest.raises(MeasurementFailed, match=r"the thing ended with exit status 3[^$]*what went wrong"),
    ):
        child.wait_for_success(30)


def test_an_early_end_is_not_waited_for(tmp_path: Path) -> None:
    """A child that ends early fails immediately."""
    with (
        Child("the thing", [sys.executable, "-c", ""], tmp_path / "log") as child,
        pytest.raises(MeasurementFailed, match="ended with exit status 0 before it listened"),
    ):
        child.wait_until(lambda: False, "it listened", 600)


def test_a_child_stays_on_its_cores_and_in_its_folder(tmp_path: Path) -> None:
    """A child has its cores and folder; the harness keeps all cores."""
    before = os.sched_getaffinity(0)
    command = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)), os.getcwd())"]
    with Child("the thing", command, tmp_path / "log", folder=tmp_path, cores={max(before)}) as child:
        child.wait_for_success(30)
        assert child.log() == f"[{max(before)}] {tmp_path}\n"
    assert os.sched_getaffinity(0) == before


def test_children_are_in_no_group_of_the_terminal(tmp_path: Path) -> None:
    """Ctrl-C in the terminal reaches only the harness, which ends its children."""
    with Child("the thing", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log") as child:
        assert os.getpgid(child.pid) == child.pid


def test_an_interrupt_while_a_child_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between fork and `with` block ends the child."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = start(*arguments, **options)
        started.append(process)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(KeyboardInterrupt), Child("the thing", command, tmp_path / "log"):
        pytest.fail("the block began")
    (process,) = started
    assert not is_alive(process.pid)
