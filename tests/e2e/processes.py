"""Starts learners and actors as processes that end with a block."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from learner.cli.operator import Operator
from learner.shared.observe.address import BoundAddresses, read_addresses
from tests.e2e.books import check_books
from tests.e2e.preloaded import children_of
from tests.e2e.state import Actor, Behavior, State, state_of
from tests.ports import reserve_ports

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300.0
"""Time limit for events that must occur; a limit for hangs, not a measurement."""
POLL_SECONDS = 0.05
DEAD_PROXIES = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTPS_PROXY", "grpc_proxy", "all_proxy", "ALL_PROXY"), "http://127.0.0.1:9"
)
"""Variables of a company's proxy, which does not answer."""
TRACEBACK = "Traceback (most recent call last)"

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, *, seconds: float = SECONDS, said: Callable[[], str] = str) -> T:
    """Waits until a condition holds, and returns its result.

    Args:
        condition: Looked at until it is true.
        what: Is waited for, for the message.
        seconds: How long.
        said: Returns what helps to understand why it did not happen.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}\n{said()}"
        time.sleep(POLL_SECONDS)
    return found


def command_environment() -> dict[str, str]:
    """Returns this process's environment without settings of Rollcast."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROLLCAST_")}


class Child:
    """A process with its output in files.

    Args:
        name: Of the files.
        arguments: Of the interpreter.
        folder: Of the files.
        environment: Added to the environment.
        cwd: Its working folder.
        python: The interpreter, of another installation; None for the one of the tests.
        program: Gets the arguments in place of an interpreter.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        *,
        python: Path | None = None,
        program: Path | None = None,
    ) -> None:
        self.name = name
        self._files = folder / f"{name}.out", folder / f"{name}.err"
        whole = {**command_environment(), **(environment or {})}
        # -P: the packages of the working folder must not take the place of those of another installation.
        interpreter = [sys.executable] if python is None else [str(python), "-P"]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen(
                [*(interpreter if program is None else [str(program)]), *arguments],
                cwd=cwd,
                env=whole,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def pid(self) -> int:
        """Returns its id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Returns whether it has not ended."""
        return self.process.poll() is None

    def out(self) -> str:
        """Returns its standard output so far."""
        return self._files[0].read_text(encoding="utf-8", errors="replace")

    def err(self) -> str:
        """Returns its standard error so far."""
        return self._files[1].read_text(encoding="utf-8", errors="replace")

    def said(self) -> str:
        """Returns the end of all it said, for messages."""
        return f"--- {self.name} ({self.process.poll()}): {(self.out() + self.err())[-4000:]}"

    def events(self, event: str) -> list[dict[str, Any]]:
        """Returns the lines of one event from its JSON log."""
        lines = (line for line in self.err().splitlines() if line.startswith("{") and line.endswith("}"))
        return [content for content in map(json.loads, lines) if content.get("event") == event]

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Ends it without a chance to clean up."""
        self.process.kill()
        self.process.wait(SECONDS)

    def wait(self) -> int:
        """Waits until it ends and returns its exit code."""
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end\n{self.said()}") from None

    def fails_with(self, code: int) -> str:
        """Waits until it ends with a code and without a traceback, and returns its last line of standard error."""
        assert self.wait() == code, self.said()
        assert TRACEBACK not in self.err() + self.out(), self.said()
        return self.err().rstrip().rpartition("\n")[2]

    def end(self) -> None:
        """Kills it if it still runs."""
        if self.is_running:
            self.process.kill()
        self.process.wait()


class LearnerProcess(Child):
    """Runs `rollcast serve` with JSON logs.

    Attributes:
        folder: Of the run.
    """

    def __init__(
        self,
        name: str,
        run_file: Path,
        folder: Path,
        logs: Path,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        python: Path | None = None,
    ) -> None:
        self.folder = folder
        self._before = _version(folder / "address.json")
        options = ["--run-id", folder.name, "--results-dir", str(folder.parent), "--log-format", "json"]
        line = ["-m", "learner", "serve", str(run_file), *options, *arguments]
        super().__init__(name, line, logs, environment, cwd, python=python)
        self._operator: Operator | None = None

    def _addresses(self) -> BoundAddresses:
        """Waits until it says where it listens."""

        def said() -> bool:
            assert self.is_running, self.said()
            return _version(self.folder / "address.json") not in {None, self._before}

        wait_until(said, "the learner says where it listens", said=self.said)
        found = read_addresses(self.folder)
        assert found is not None
        return found

    @property
    def trainers(self) -> list[int]:
        """Returns the ids of the processes of its trainers that it has started itself; none for threads."""
        found = []
        for pid in children_of(self.pid):
            with contextlib.suppress(OSError):  # it has just ended
                if b"learner.start.trainer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    @property
    def address(self) -> str:
        """Returns where actors connect."""
        return self._addresses().address

    @property
    def operator(self) -> Operator:
        """Returns an operator of the run."""
        if self._operator is None:
            self._operator = Operator.of(self._addresses())
        return self._operator

    def status(self) -> State:
        """Returns its state; the books are checked at every look."""
        status = state_of(self.operator)
        check_books(status)
        return status

    def behavior(self, name: str) -> Behavior:
        """Returns the state of a behavior; all zeros if it was not declared yet."""
        return next((row for row in self.status().behaviors if row.behavior == name), Behavior())

    def actor(self, name: str) -> Actor:
        """Returns the state of an actor; all zeros if it is not there."""
        return next((row for row in self.status().actors if row.actor_name == name), Actor())

    def wait_for(self, condition: Callable[[], T], what: str, *others: Child) -> T:
        """Waits until a condition holds, while it and the others run."""

        def holds() -> T:
            for child in (self, *others):
                assert child.is_running, f"{what}: {child.name} has ended\n{child.said()}"
            return condition()

        return wait_until(holds, what, said=lambda: "\n".join(child.said() for child in (self, *others)))

    def wait_for_version(self, behavior: str, version: int, *others: Child) -> Behavior:
        """Waits until a behavior has had so many updates, and returns its state then."""
        row = Behavior()

        def reached() -> bool:
            nonlocal row
            row = self.behavior(behavior)
            return row.version >= version

        self.wait_for(reached, f"version {version} of {behavior}", *others)
        return row


class Processes:
    """Starts processes; `end` leaves none of them.

    Args:
        folder: For their output, and for run folders.
        cwd: Their working folder.
    """

    def __init__(self, folder: Path, cwd: Path = ROOT) -> None:
        self.folder = folder
        self._cwd = cwd
        self._children: list[Child] = []

    def learner(
        self,
        run_file: Path,
        *arguments: str,
        run: str = "run",
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> LearnerProcess:
        """Starts a learner on a loopback port, which it can have again after a restart: no socket gets it by chance."""
        name = f"learner-{len(self._children)}"
        address = ["--address", f"127.0.0.1:{port or reserve_ports()}"]
        folder = self.folder / "results" / run
        options = [*address, *arguments]
        learner = LearnerProcess(
            name, run_file, folder, self.folder, options, environment=environment, cwd=self._cwd, python=python
        )
        self._children.append(learner)
        return learner

    def actor(
        self,
        address: str,
        env: str,
        *arguments: str,
        name: str = "actor",
        environment: Mapping[str, str] | None = None,
        command: str = "gym",
        python: Path | None = None,
    ) -> Child:
        """Starts `rollcast act gym`, or another command that takes environments."""
        options = ["--learner", address, "--env", env, "--name", name, "--log-format", "json"]
        line = ["-m", "actor_client", command, *options, *arguments]
        return self.python(f"{name}-{len(self._children)}", *line, environment=environment, python=python)

    def python(
        self,
        name: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        python: Path | None = None,
        cwd: Path | None = None,
    ) -> Child:
        """Starts an interpreter, in another working folder if one is given."""
        child = Child(name, arguments, self.folder, environment, cwd or self._cwd, python=python)
        self._children.append(child)
        return child

    def program(self, name: str, program: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Child:
        """Starts another program than an interpreter."""
        child = Child(name, arguments, self.folder, environment, self._cwd, program=program)
        self._children.append(child)
        return child

    def end(self) -> None:
        """Kills all processes that still run."""
        for child in reversed(self._children):
            child.end()


@contextlib.contextmanager
def processes_in(folder: Path, cwd: Path = ROOT) -> Iterator[Processes]:
    """Starts processes that end with the block."""
    started = Processes(folder, cwd)
    try:
        yield started
    finally:
        started.end()


def peak_memory_bytes(pid: int) -> int:
    """Returns the largest resident memory a running process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _version(file: Path) -> tuple[int, int] | None:
    """Returns what differs after a file was replaced; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
