"""Reads the curves of a run from its `stats.csv` files, which may hold anything."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rollcast.text import printable

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import open_regular
from learner.shared.observe.csvfile import COLUMNS, STATS_FILE
from learner.shared.results import listing

RETURN_KEY = "Environment/Cumulative Reward"
MAX_POINTS = 200_000
"""Longest curve; a run writes a point per summary."""
_EPISODE_KEYS = re.compile(
    r"Environment/(?!Lesson Number/)|Evaluation/(Group )?Cumulative Reward$|Evaluation/Episode Length$"
)
"""Statistics of episodes, whose count is a number of episodes; those of infos are below ``Environment/``."""
_MAX_LINE_CHARS = 10_000
_MAX_KEYS = 1000
_LARGEST = 1e15
"""Larger numbers are damage or a diverged return, and no scale shows them next to others."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One statistic of one behavior of one run.

    Attributes:
        run_id: Name of the run.
        behavior: Name of the behavior's folder.
        steps: Environment steps trained, ascending.
        seconds: Seconds since the behavior was first declared, ascending.
        values: Finite values.
    """

    run_id: str
    behavior: str
    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    step: int
    seconds: float
    value: float
    count: int


def read_curves(run: Path, key: str, episodes: int = 1) -> list[Curve]:
    """Returns the curves of a statistic, one for each behavior of a run that has it.

    Invalid rows and rows with numbers above 1e15 are skipped. A row holds the mean of the episodes since the previous
    one, and the last row of a run may hold a single episode, so each point of a statistic of episodes is the mean over
    as many of the newest rows as hold `episodes` of them.

    Args:
        run: Run folder.
        key: Name of the statistic.
        episodes: Least number of episodes behind a point, as far as there are as many.

    Raises:
        UserError: The run lacks the statistic, or has no statistics at all.
    """
    if not run.is_dir():
        raise UserError(
            ExitCode.NOTHING_TO_RESUME,
            f"there is no run {printable(run.name)!r} in {printable(str(run.parent))}; {printable(listing(run.parent))} lists them",
        )
    window = episodes if _EPISODE_KEYS.match(key) else 1
    curves, keys, files = [], set[str](), sorted(run.glob(f"*/{STATS_FILE}"))
    for file in files:
        points = _points(file, key, keys)
        if points:
            steps = tuple(point.step for point in points)
            seconds = tuple(point.seconds for point in points)
            curves.append(Curve(run.name, file.parent.name, steps, seconds, tuple(_means(points, window))))
    shown = printable(str(run))
    if not files:
        raise UserError(
            ExitCode.USAGE,
            f"{shown} has no {STATS_FILE}: it has not reached its first summary (summary_freq), or "
            "rollcast.stats_writers does not name csv",
        )
    if not curves:
        known = ", ".join(sorted(keys)[:30]) or "none"
        raise UserError(ExitCode.USAGE, f"{shown} has no values of {printable(key)!r}; --key takes one of: {known}")
    return curves


def read_statistics(path: Path) -> dict[str, list[float]]:
    """Returns all statistics of a `stats.csv`, by name: a value for each summary, NaN where one lacks it.

    Returns:
        Lists of equal length, ``step`` (environment steps trained) and ``seconds`` first; empty before the first summary.
    """
    points: dict[str, dict[int, _Point]] = {}
    with contextlib.suppress(FileNotFoundError):
        for row in _rows(path):
            if (point := _point(row)) is not None:
                points.setdefault(row[2], {})[point.step] = point
    seconds = {step: point.seconds for found in points.values() for step, point in found.items()}
    steps = sorted(seconds)
    columns: dict[str, list[float]] = {"step": list(map(float, steps)), "seconds": [seconds[step] for step in steps]}
    for name, found in points.items():
        columns[name] = [found[step].value if step in found else math.nan for step in steps]
    return columns if points else {}


def _points(path: Path, key: str, keys: set[str]) -> list[_Point]:
    """Returns the rows of a statistic, and adds the names of all statistics in the file to `keys`."""
    points: list[_Point] = []
    try:
        for row in _rows(path):
            if len(keys) < _MAX_KEYS:
                keys.add(printable(row[2]))
            point = _point(row) if row[2] == key else None
            if point and (not points or (point.step > points[-1].step and point.seconds >= points[-1].seconds)):
                points.append(point)
                if len(points) > MAX_POINTS:
                    raise UserError(
                        ExitCode.USAGE, f"{printable(str(path))} has more than {MAX_POINTS} values of a key"
                    )
    except (OSError, csv.Error) as error:
        raise UserError(ExitCode.USAGE, f"{printable(str(path))} cannot be read: {error}") from None
    return points


def _rows(path: Path) -> Iterator[list[str]]:
    with io.TextIOWrapper(open_regular(path), "utf-8", errors="replace", newline="") as file:
        lines = (line for line in iter(lambda: file.readline(_MAX_LINE_CHARS), "") if "\0" not in line)
        yield from (row for row in csv.reader(lines) if len(row) == len(COLUMNS) and row[0] != COLUMNS[0])


def _point(row: list[str]) -> _Point | None:
    try:
        step, seconds, value, count = int(row[0]), float(row[1]), float(row[3]), int(row[4])
    except ValueError:
        return None
    is_sound = 0 <= step <= _LARGEST and 0 <= seconds <= _LARGEST and abs(value) <= _LARGEST  # excludes NaN too
    return _Point(step, seconds, value, count) if is_sound and 1 <= count <= _LARGEST else None


def _means(points: list[_Point], window: int) -> Iterator[float]:
    """Returns the mean over the newest points that hold `window` values, at each point."""
    first, held = 0, 0
    for end, point in enumerate(points, start=1):
        held += point.count
        while held - points[first].count >= window:
            held -= points[first].count
            first += 1
        yield sum(newest.value * newest.count for newest in points[first:end]) / held
