"""Reads the curves that a run's `stats.csv` files hold."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from learner.common.exits import ExitCode, UserError
from learner.common.files import open_regular
from learner.observe.csvfile import COLUMNS, STATS_FILE
from learner.observe.text import printable

RETURN_KEY = "Environment/Cumulative Reward"
_MAX_LINE_CHARS = 10_000
_LARGEST = 1e15
"""What is larger is damage, or a return that diverged: no scale could show it beside others, nor matplotlib draw it."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One statistic of one behavior of one run.

    Attributes:
        run_id: the run.
        behavior: the name of its folder.
        steps: environment steps trained.
        seconds: since the behavior was first declared.
        values: finite ones.
    """

    run_id: str
    behavior: str
    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    values: tuple[float, ...]


def read_curves(run: Path, key: str) -> list[Curve]:
    """Returns the curves of a statistic, one for each behavior of a run that has it.

    Rows that make no sense are left out, and those with numbers beyond 1e15.

    Raises:
        UserError: the run has no such statistic, or no statistics at all.
    """
    if not run.is_dir():
        raise UserError(
            ExitCode.USAGE, f"there is no run {printable(run.name)!r} in {run.parent}: see rollcast-learner runs"
        )
    files = sorted(run.glob(f"*/{STATS_FILE}"))
    curves, keys = [], set[str]()
    for file in files:
        curve, found = _read(file, run.name, key)
        keys |= found
        if curve.values:
            curves.append(curve)
    if not files:
        raise UserError(
            ExitCode.USAGE,
            f"{run} has no {STATS_FILE}: it has not trained up to its first summary (summary_freq), or "
            "rollcast.stats_writers leaves csv out",
        )
    if not curves:
        known = ", ".join(sorted(keys)[:30]) or "none"
        raise UserError(ExitCode.USAGE, f"{run} has no values of {key!r}; --key takes one of: {known}")
    return curves


def _read(path: Path, run_id: str, key: str) -> tuple[Curve, set[str]]:
    """Returns a curve, maybe an empty one, and the names of all statistics in the file."""
    steps: list[int] = []
    seconds: list[float] = []
    values: list[float] = []
    keys: set[str] = set()
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8", errors="replace", newline="") as file:
            lines = (line for line in iter(lambda: file.readline(_MAX_LINE_CHARS), "") if "\0" not in line)
            for row in csv.reader(lines):
                if len(row) != len(COLUMNS) or row[0] == COLUMNS[0]:
                    continue
                keys.add(row[2])
                if row[2] != key:
                    continue
                try:
                    step, second, value = int(row[0]), float(row[1]), float(row[3])
                except ValueError:
                    continue
                if 0 <= step <= _LARGEST and 0 <= second <= _LARGEST and abs(value) <= _LARGEST:  # nor NaN
                    steps.append(step)
                    seconds.append(second)
                    values.append(value)
    except (OSError, csv.Error) as error:
        raise UserError(ExitCode.USAGE, f"{path} cannot be read: {error}") from None
    return Curve(run_id, path.parent.name, tuple(steps), tuple(seconds), tuple(values)), {printable(k) for k in keys}
