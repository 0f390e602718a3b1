"""Standard output and the terminal may go away while a run lasts: it trains on, and ends as it would have ended."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from learner.common.exits import ExitCode
from learner.observe.address import read_addresses
from tests.e2e.processes import ROOT, SECONDS, TRACEBACK, command_environment, wait_until
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.slow


class Shown:
    """Reads what a process writes to one end of a pipe or terminal, as a person would see it."""

    def __init__(self, descriptor: int) -> None:
        self.text = ""
        self._descriptor = descriptor
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:  # the terminal's other end is closed
                return
            if not data:
                return
            self.text += data.decode(errors="replace")

    def end(self) -> str:
        """Waits until nobody can write any more, and returns everything."""
        self._thread.join(SECONDS)
        os.close(self._descriptor)
        return self.text


def learner(folder: Path, stdout: int, stderr: int, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts a learner for people, with these outputs."""
    run_file = write_run(folder, {"CartPole": small()})
    options = ["--run-id", "run", "--results-dir", str(folder), "--address", "127.0.0.1:0", *arguments]
    return subprocess.Popen(
        [sys.executable, "-m", "learner", "serve", str(run_file), *options],
        cwd=ROOT,
        env={**command_environment(), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
    )


def summary(folder: Path) -> dict[str, Any]:
    """What the run left for machines."""
    content: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return content


def unread_pipe() -> int:
    """Returns the end for writing of a pipe that nobody reads, as left by `| head -0`."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("terminal", [False, True])
def test_standard_output_that_nobody_reads(tmp_path: Path, terminal: bool) -> None:
    """`serve ... | head -0` costs the table alone, whether standard error is a terminal or not."""
    out = unread_pipe()
    parent, err = pty.openpty() if terminal else os.pipe()
    process = learner(tmp_path, out, err, "--max-wall-seconds", "1.5")
    os.close(out)
    os.close(err)
    shown = Shown(parent)
    assert process.wait(SECONDS) == ExitCode.OK, shown.end()
    said = shown.end()
    assert TRACEBACK not in said, said
    assert "stopping" in said, "the log goes on"
    assert summary(tmp_path)["stop_reason"] == "max_wall_seconds"


ENDINGS: dict[str, Callable[[subprocess.Popen[bytes]], None]] = {
    "by itself": lambda _process: None,
    "by a signal": lambda process: process.send_signal(signal.SIGTERM),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_terminal_that_goes_away(tmp_path: Path, ending: str) -> None:
    """Behind a panel, too: what cannot be drawn is not drawn, and the run goes on to its end."""
    parent, child = pty.openpty()
    process = learner(tmp_path, child, child, "--max-wall-seconds", "3" if ending == "by itself" else "900")
    os.close(child)
    shown = b""
    while "╭".encode() not in shown:
        shown += os.read(parent, 65536)
    os.close(parent)
    wait_until(lambda: read_addresses(tmp_path / "run"), "it listens")
    ENDINGS[ending](process)
    assert process.wait(SECONDS) == ExitCode.OK
    assert summary(tmp_path)["stop_reason"] == ("signal" if ending == "by a signal" else "max_wall_seconds")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_that_nobody_reads(unbuffered: str) -> None:
    """A refusal keeps its exit code where standard error is closed."""
    err = unread_pipe()
    command = [sys.executable, "-m", "learner", "status", "--no-such-flag"]
    environ = {**command_environment(), "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, cwd=ROOT, env=environ, stderr=err, timeout=SECONDS, check=False)
    os.close(err)
    assert done.returncode == ExitCode.USAGE
