"""Runs pytest: in the foreground, or in several processes whose output is shown line by line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tests.tools.suite.outcome import Outcome, read_report
from tests.tools.suite.tiers import ROOT

NOTHING_COLLECTED = 5
INTERRUPTED = 130
_SECTIONS = re.compile(r"^=+ (FAILURES|ERRORS) =+$")
_TAIL_LINES = 60


class Shard:
    """A process of pytest, whose output goes to a log and, line by line, to the terminal.

    Args:
        number: Its number, for the prefix of its lines.
        command: What it runs.
        folder: For its log and its report.
    """

    def __init__(self, number: int, command: Sequence[str], folder: Path) -> None:
        self.number = number
        self.report = folder / f"{number}.json"
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [*command, "--suite-report", str(self.report)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C is passed on once, by interrupt()
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip("\n"))
                sys.stdout.write(f"{self.number} | {line}")
                sys.stdout.flush()

    def interrupt(self) -> None:
        """Ends it as Ctrl-C does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()

    def wait(self) -> int:
        """Waits for its end, and returns its exit code."""
        code = self._process.wait()
        self._reader.join(timeout=10)  # a process that a test left behind may keep the pipe open
        return code

    def sections(self) -> list[str]:
        """Returns what it said of failures; its last lines if it did not come to an end."""
        if not self.report.exists():
            return self.lines[-_TAIL_LINES:]
        start = next((index for index, line in enumerate(self.lines) if _SECTIONS.match(line)), None)
        return [] if start is None else self.lines[start:]


def command(marks: str, *arguments: str) -> list[str]:
    """Returns the command of one process of pytest."""
    plugin = ["-p", "tests.tools.suite.plugin"]
    return [sys.executable, "-m", "pytest", *plugin, *(["-m", marks] if marks else []), *arguments]


def in_foreground(words: Sequence[str]) -> tuple[Outcome, int]:
    """Runs pytest in one process with this terminal."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        begin = time.monotonic()
        process = subprocess.Popen([*words, "--suite-report", str(report)], cwd=ROOT)
        # The terminal sends Ctrl-C to pytest too; other signals are passed on.
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT)),
        }
        try:
            code = process.wait()
        finally:
            _restore(before)
        outcome = read_report(report) if report.exists() else Outcome()
        outcome.seconds = time.monotonic() - begin
    return outcome, code if code >= 0 else 128 - code


def side_by_side(commands: Sequence[Sequence[str]], *, may_be_empty: bool) -> tuple[Outcome, int]:
    """Runs several processes of pytest, and shows what failed at the end.

    Args:
        commands: Of each process.
        may_be_empty: Whether a process may find no test, as long as another one does.
    """
    total = Outcome()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shards = [Shard(number, words, Path(folder)) for number, words in enumerate(commands, 1)]
        codes, interrupted = _wait(shards)
        for shard in shards:
            if shard.report.exists():
                total.add(read_report(shard.report))
        for shard, code in zip(shards, codes, strict=True):
            if code not in {0, NOTHING_COLLECTED} or not shard.report.exists():
                print("\n".join(["", *shard.sections()]))
                print(f"shard {shard.number} ended with exit code {code}")
    total.seconds = time.monotonic() - begin
    return total, INTERRUPTED if interrupted else exit_code(codes, may_be_empty=may_be_empty)


def exit_code(codes: Sequence[int], *, may_be_empty: bool) -> int:
    """Returns the exit code of several processes of pytest together."""
    empty = [code == NOTHING_COLLECTED for code in codes]
    if may_be_empty and not all(empty):
        codes = [code for code in codes if code != NOTHING_COLLECTED]
    worst = max(codes, key=abs, default=NOTHING_COLLECTED)
    return worst if worst >= 0 else 128 - worst


def _wait(shards: Sequence[Shard]) -> tuple[list[int], bool]:
    """Waits for all; the first Ctrl-C or SIGTERM ends them in good order, the second at once."""
    signals = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        for shard in shards:
            shard.interrupt() if signals == 1 else shard.kill()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return [shard.wait() for shard in shards], signals > 0
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
