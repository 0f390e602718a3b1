"""Statistics as CSV, one row per statistic and summary: for pandas, spreadsheets, and `rollcast-learner compare`."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from learner.common.files import open_regular
from learner.observe.jsonfile import AppendFile
from learner.observe.stats import HIDDEN_KEYS, StatSummary
from learner.observe.text import printable

STATS_FILE = "stats.csv"
COLUMNS = ("step", "seconds", "key", "value", "count", "std")
_HEADER = (",".join(COLUMNS) + "\n").encode()


class CsvWriter:
    """Writes each category into ``<run folder>/<behavior>/stats.csv``.

    The rows are ``step,seconds,key,value,count,std``: the environment steps trained, the time since the behavior was
    first declared (time in which no learner ran left out), a statistic's name, its one number, and how many values with
    which standard deviation it stands for. A statistic that appears later needs no new column, and a number that is not
    finite is an empty cell.

    A run that goes on from a checkpoint goes on in the same file: rows of steps that are trained again are cut off
    before the first new one is written. Steps only grow down the file: a summary that is not of a later step than the
    one before it (what a run collected after its last one) is left out, so each statistic has one row a step.

    Args:
        run_folder: ``results/<run_id>``.
        folder_name: the folder of a behavior in it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        run_folder: Path,
        folder_name: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_folder = run_folder
        self._folder_name = folder_name
        self._clock = clock
        self._files: dict[str, AppendFile] = {}
        self._started: dict[str, float] = {}
        self._restarts: dict[str, int] = {}
        self._last_steps: dict[str, int] = {}

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Adds a row for each summary; all of them or none.

        Raises:
            OSError: the file cannot be written.
        """
        file = self._file(category, step)
        if step <= self._last_steps[category]:
            return
        seconds = self._clock() - self._started[category]
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        for key, summary in summaries.items():
            if key not in HIDDEN_KEYS:
                numbers = (_cell(summary.value), summary.count, _cell(summary.std))
                rows.writerow((step, f"{seconds:.3f}", printable(key), *numbers))
        file.append((b"" if file.size_bytes else _HEADER) + text.getvalue().encode())
        self._last_steps[category] = step

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Starts the category's clock; texts have no place in a table."""
        del title, text, step
        self._started.setdefault(category, self._clock())

    def restart(self, category: str, step: int) -> None:
        """Notes that a run goes on: rows of later steps are of a future that did not come about."""
        self._restarts[category] = step
        self._started.setdefault(category, self._clock())

    def close(self) -> None:
        """Closes every file."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def _file(self, category: str, step: int) -> AppendFile:
        file = self._files.get(category)
        if file is not None:
            return file
        path = self._run_folder / self._folder_name(category) / STATS_FILE
        started = self._started.setdefault(category, self._clock())
        # Whatever was there and no restart was told of: the present step is the first of a start from nothing.
        last_step = min(self._restarts.get(category, step - 1), step - 1)
        last_step, before_seconds = cut_after(path, last_step)
        file = self._files[category] = AppendFile(path)
        self._last_steps[category] = last_step
        self._started[category] = started - before_seconds
        return file


def cut_after(path: Path, step: int) -> tuple[int, float]:
    """Cuts off the rows of later steps, and returns step and seconds of the last row that stays (-1 and 0 for none).

    Raises:
        OSError: the file cannot be changed.
    """
    last, keep_bytes = (-1, 0.0), 0
    try:
        with open_regular(path, os.O_RDWR) as file:
            for line in file:
                place = _place(line)
                if place is not None and place[0] > step:
                    break
                if not line.endswith(b"\n"):
                    break
                keep_bytes += len(line)
                last = place or last
            file.truncate(keep_bytes)
    except FileNotFoundError:
        return last
    return last


def _place(line: bytes) -> tuple[int, float] | None:
    """Returns step and seconds of a row; None for the header, and for what is no row."""
    parts = line.split(b",", 2)
    try:
        step, seconds = int(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        return None
    return (step, seconds) if math.isfinite(seconds) else None


def _cell(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""
