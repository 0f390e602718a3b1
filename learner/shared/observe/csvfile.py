"""Writes statistics as CSV, one row per statistic and summary; for pandas, spreadsheets and `rollcast compare`."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rollcast.text import printable

from learner.shared.files import open_regular
from learner.shared.observe.jsonfile import AppendFile
from learner.shared.observe.stats import HIDDEN_KEYS, StatSummary

STATS_FILE = "stats.csv"
COLUMNS = ("step", "seconds", "key", "value", "count", "std")
_HEADER = (",".join(COLUMNS) + "\n").encode()


class CsvWriter:
    """Writes each category into ``<run folder>/<behavior>/stats.csv``.

    The rows are ``step,seconds,key,value,count,std``: the environment steps trained, the time since the behavior was
    first declared (without the time in which no learner ran), the name of a statistic, its value, and the number and
    standard deviation of the values behind it. A new statistic needs no new column, and a number that is not finite is
    an empty cell.

    A run resumed from a checkpoint continues the same file: rows of steps that are trained again are removed before the
    first new one is written. Steps increase from row to row: a summary whose step is not above the previous one (values
    collected after the last summary of a stopped run) is left out, so each statistic has one row per step.

    Args:
        run_folder: ``results/<run_id>``.
        folder_name: Returns the name of a behavior's folder in it.
        clock: Returns monotonic seconds.
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
        """Adds a row for each summary; writes all of them or none.

        Raises:
            OSError: The file cannot be written.
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
        """Starts the category's clock; texts are not written."""
        del title, text, step
        self._started.setdefault(category, self._clock())

    def restart(self, category: str, step: int) -> None:
        """Records that a run resumes: rows of later steps are no longer part of it."""
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
        # Without a restart the run starts over, so older rows of this step and later ones are removed.
        last_step = min(self._restarts.get(category, step - 1), step - 1)
        last_step, before_seconds = cut_after(path, last_step)
        file = self._files[category] = AppendFile(path)
        self._last_steps[category] = last_step
        self._started[category] = started - before_seconds
        return file


def cut_after(path: Path, step: int) -> tuple[int, float]:
    """Removes the rows of later steps, and returns step and seconds of the last remaining row (-1 and 0 for none).

    Raises:
        OSError: The file cannot be changed.
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
    """Returns step and seconds of a row; None for the header and for invalid rows."""
    parts = line.split(b",", 2)
    try:
        step, seconds = int(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        return None
    return (step, seconds) if math.isfinite(seconds) else None


def _cell(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""
