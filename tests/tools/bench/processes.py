"""Runs child processes, ends everything they started, and keeps what they write in one folder."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.tools.bench.measurement import MeasurementFailed

REPOSITORY = Path(__file__).resolve().parents[3]
END_SECONDS = 10.0
"""Seconds a child may take to end before it is killed."""
_POLL_SECONDS = 0.05
_LOG_LINES = 12


@contextmanager
def on_cores(cores: Collection[int] | None) -> Iterator[None]:
    """Runs a block on some cores; processes that it starts stay on them. None changes nothing."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Child:
    """A process in its own process group, with its output in a file.

    A terminal's Ctrl-C does not reach it; `end` does, for it and for everything that it started and that stayed in its
    group.

    Args:
        name: For messages.
        command: Program and arguments.
        log: Where its output goes, both streams; overwritten.
        environment: Added to this process's environment.
        cwd: Where it is started.
        cores: Those it may use; None allows those of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        cwd: Path = REPOSITORY,
        cores: Collection[int] | None = None,
    ) -> None:
        self.name = name
        self._command = [str(part) for part in command]
        self._log = log
        self._environment = dict(environment or {})
        self._cwd = cwd
        self._cores = cores
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    def children(self) -> list[int]:
        """Returns the ids of the processes that it has started and that run."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(pid) for children in tasks for pid in children.read_text(encoding="ascii").split()]

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        if self._started is None:
            raise RuntimeError(f"{self.name} was not started; use it in a with block")
        return self._started

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as output, on_cores(self._cores):
            self._started = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def log(self) -> str:
        """Returns what it has written so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def is_running(self) -> bool:
        """Returns whether it is still running."""
        return self._process.poll() is None

    def wait(self, timeout_seconds: float) -> int:
        """Waits for its end and returns its exit status.

        Raises:
            MeasurementFailed: It did not end in time.
        """
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end within {timeout_seconds:.0f} s") from None

    def wait_for_success(self, timeout_seconds: float) -> None:
        """Waits for its end.

        Raises:
            MeasurementFailed: It did not end in time, or its exit status is not 0.
        """
        status = self.wait(timeout_seconds)
        if status:
            raise self.failed(f"ended with exit status {status}")

    def wait_until(self, is_true: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        """Waits until something is true of a running child.

        Raises:
            MeasurementFailed: It ended before, or it took too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_true():
            if not self.is_running() and not is_true():
                raise self.failed(f"ended with exit status {self._process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise self.failed(f"took longer than {timeout_seconds:.0f} s until {what}")
            time.sleep(_POLL_SECONDS)

    def failed(self, what: str) -> MeasurementFailed:
        """Returns an error that shows the end of the log."""
        lines = self.log().strip().splitlines()[-_LOG_LINES:]
        shown = "".join(f"\n    {line}" for line in lines)
        return MeasurementFailed(f"{self.name} {what}; the end of {self._log}:{shown or ' nothing'}")

    def end(self) -> None:
        """Ends the whole group, cleanly if it can; nothing of it is left afterwards."""
        if self._started is None:
            return
        deadline = time.monotonic() + END_SECONDS
        try:
            self._signal(signal.SIGTERM)
            while self._is_group_alive() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        finally:  # a second Ctrl-C ends the waiting, not the ending
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _is_group_alive(self) -> bool:
        self._process.poll()  # a child that ended but was not waited for would count as alive
        return self._signal(0)

    def _signal(self, number: int) -> bool:
        """Signals the group and returns whether it existed."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Workplace:
    """A folder for logs, run folders, temporary files and the result.

    Args:
        root: The folder; made when it is missing.
    """

    def __init__(self, root: Path = REPOSITORY / "results" / "bench") -> None:
        self.root = root
        self.runs = root / "runs"
        self._temporary = root / "tmp"
        self._temporary.mkdir(parents=True, exist_ok=True)

    @property
    def result(self) -> Path:
        """Returns the path of the JSON file with all figures."""
        return self.root / "bench.json"

    @property
    def environment(self) -> Mapping[str, str]:
        """Returns environment variables of children, with a temporary folder."""
        return {"TMPDIR": str(self._temporary)}

    def log(self, name: str) -> Path:
        """Returns where the output of one process goes."""
        return self.root / "logs" / f"{name}.log"

    def clean(self) -> None:
        """Removes temporary files."""
        shutil.rmtree(self._temporary, ignore_errors=True)
