"""A plugin of pytest that writes what became of a run: counts, failures, and the processor time of each file."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_UNCOUNTED = frozenset({""})
_HELD_SECONDS = 60.0
"""Time for threads that tests left to end after the last test; the interpreter would wait for them for ever."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the runner."""
    parser.addoption("--suite-report", type=Path, help="file that the outcome is written to, as JSON")
    parser.addoption("--suite-costs", action="store_true", help="write the processor time of each file too")


def pytest_configure(config: pytest.Config) -> None:
    """Observes a run that someone wants to know about."""
    if config.getoption("--suite-report"):
        config.pluginmanager.register(_Observer(config), "suite-observer")


class _Observer:
    """Observes a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path = config.getoption("--suite-report")
        self._measures: bool = config.getoption("--suite-costs")
        self._config = config
        self._costs: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if not self._measures:
            return (yield)
        before = processor_seconds()
        try:
            return (yield)
        finally:
            self._costs[item.nodeid.partition("::")[0]] += max(0.0, processor_seconds() - before)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        stats: dict[str, list[Any]] = reporter.stats
        counts = Counter(
            {
                kind: sum(getattr(each, "count_towards_summary", True) for each in found)
                for kind, found in stats.items()
                if kind not in _UNCOUNTED
            }
        )
        failures = [
            {"test": each.nodeid, "error": _first_line(each), "kind": kind, "when": getattr(each, "when", "collect")}
            for kind in ("failed", "error")
            for each in stats.get(kind, [])
        ]
        self._path.write_text(
            json.dumps({"exit": int(exitstatus), "counts": counts, "failures": failures, "costs": self._costs})
        )
        end_if_held(int(exitstatus), _HELD_SECONDS)


def end_if_held(code: int, seconds: float) -> None:
    """Ends the process if threads hold it that long after its main thread, as those of a test that failed before it ended them."""

    def end() -> None:
        threading.main_thread().join()
        threading.Event().wait(seconds)
        main = threading.main_thread()
        held = [each.name for each in threading.enumerate() if not each.daemon and each is not main]
        sys.stdout.flush()
        sys.stderr.write(f"ended: threads that tests left held the process: {', '.join(held)}\n")
        sys.stderr.flush()
        os._exit(code)

    threading.Thread(target=end, name="suite-end", daemon=True).start()


def _first_line(report: Any) -> str:
    """Returns the first line of what a failed test says."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longrepr).strip().splitlines()
    return lines[0] if lines else "no message"


def processor_seconds() -> float:
    """Returns the processor time of this process and of all that it started, also through other processes."""
    total = sum(os.times()[:4])
    if not Path("/proc/self/stat").exists():
        return total
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a thousand times a run
        if name.isdecimal():
            try:
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            parents[int(name)] = int(fields[1])
            seconds[int(name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    own = os.getpid()

    def is_below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == own:
                return True
        return False

    return total + sum(each for pid, each in seconds.items() if is_below(pid))
