"""Lists runs with their state and progress. Reads small files only, so that hundreds of runs take less than a second."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rollcast.text import MAX_TEXT_CHARS, printable

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import open_regular
from learner.shared.observe.address import ADDRESS_FILE, TRAINERS_FILE
from learner.shared.observe.journal import JOURNAL_FILE, newest_events
from learner.shared.observe.summary import PROGRESS_FILE, SUMMARY_FILE, finite, read_small_json
from learner.shared.observe.text import aligned, number
from learner.shared.runfolder.lock import LOCK_NAME, FolderLock

_MARKS = ("generation", "configuration.yaml", SUMMARY_FILE, "run_state.pt", PROGRESS_FILE)
"""A folder with one of these files is a run folder."""
MAX_NESTED = 4
"""Folders above a run, below that of all runs: ``--run-id soccer/first`` makes one."""
_TAIL_BYTES = 8192
_STATES = {
    "target_return": "finished",
    "target_rating": "finished",
    "max_steps": "finished",
    "max_wall_seconds": "finished",
}
_FAILURES = frozenset({"trainer_failed", "error"})


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run.

    Attributes:
        run_id: Name of its folder, relative to that of all runs.
        state: ``starting`` (its learner does not listen yet), ``running``, ``waiting``, ``paused`` or ``ending`` while a
            learner uses the folder; otherwise ``finished``,
            ``stopped`` (it can be resumed), ``failed``, ``killed`` (its learner ended without a report), ``copy`` (a copy of
            a run without an end, as of a backup, or one from another disk: no learner has had it in this place),
            ``unstarted`` (no learner of it ever listened), or ``unknown``, as where the lock cannot be read.
        reason: Why it ended; empty if unknown.
        generation: Number of starts of its learner; 0 if unknown.
        env_steps_trained: Trained steps of all behaviors together; None if unknown.
        max_steps: Limit of all behaviors together; None if unknown.
        mean_return: Mean return of the first behavior that has one; None if there is none.
        best_return: Best mean return of that behavior; None if there is none.
        age_seconds: Seconds since one of its files was last written.
    """

    run_id: str
    state: str
    reason: str
    generation: int
    env_steps_trained: int | None
    max_steps: int | None
    mean_return: float | None
    best_return: float | None
    age_seconds: float | None


def list_runs(results_dir: Path) -> list[RunRow]:
    """Returns the runs in a folder and in folders below it, the most recently written first.

    Files of any content are read without an error.

    Raises:
        UserError: The folder cannot be read.
    """
    try:
        folders = list(run_places(results_dir))
    except OSError as error:
        raise UserError(
            ExitCode.USAGE, f"{results_dir} cannot be read ({error.strerror}); name the folder with --results-dir"
        ) from None
    now = time.time()
    rows = [
        replace(read_run(folder, now), run_id=folder.relative_to(results_dir).as_posix())
        for folder in folders
        if _is_run(folder)
    ]
    return sorted(rows, key=lambda row: (row.age_seconds is None, row.age_seconds or 0.0, row.run_id))


def run_places(results_dir: Path, depth: int = MAX_NESTED) -> Iterator[Path]:
    """Yields the folders in which a run may be: those in a folder, and below those that are no runs.

    Raises:
        OSError: The folder cannot be read.
    """
    with os.scandir(results_dir) as entries:
        folders = [Path(entry.path) for entry in entries if _is_folder(entry)]
    for folder in folders:
        yield folder
        if depth and not _is_run(folder):
            with contextlib.suppress(OSError):
                yield from run_places(folder, depth - 1)


def read_run(folder: Path, now: float) -> RunRow:
    """Returns a run's row from its files.

    Args:
        folder: Run folder.
        now: Current time, in seconds since the epoch.
    """
    summary, progress = read_small_json(folder / SUMMARY_FILE), read_small_json(folder / PROGRESS_FILE)
    generation = _generation(folder)
    state, reason = _state(folder, generation, summary, progress)
    behaviors = _behaviors(progress) or _behaviors(summary) or [summary]
    returns = [value for part in behaviors if (value := _first(part, "mean_return", "mean_return_100")) is not None]
    bests = [value for part in behaviors if (value := finite(part.get("best_return"))) is not None]
    return RunRow(
        run_id=folder.name,
        state=state,
        reason=reason,
        generation=generation,
        env_steps_trained=_total(behaviors, "env_steps_trained"),
        max_steps=_total(behaviors, "max_steps"),
        mean_return=returns[0] if returns else None,
        best_return=bests[0] if bests else (returns[0] if returns else None),
        age_seconds=_age(folder, now),
    )


def state_of(folder: Path) -> str:
    """Returns the state of a run, as in its row."""
    summary, progress = read_small_json(folder / SUMMARY_FILE), read_small_json(folder / PROGRESS_FILE)
    return _state(folder, _generation(folder), summary, progress)[0]


def _state(folder: Path, generation: int, summary: Mapping[str, Any], progress: Mapping[str, Any]) -> tuple[str, str]:
    last = _last_event(folder)
    has_ended = last.get("event") in ("finished", "failed") and last.get("generation") == generation
    if FolderLock.is_held(folder):
        if not any((folder / name).exists() for name in (ADDRESS_FILE, TRAINERS_FILE)):
            return ("ending" if has_ended and _is_newer(folder / JOURNAL_FILE, folder / LOCK_NAME) else "starting"), ""
        told = progress.get("state") if progress.get("generation") == generation else None
        return (told if told in ("waiting", "paused") else "running"), ""
    reason = ""
    if has_ended:
        reason = _text(last.get("reason"))
    elif summary.get("generation") == generation:
        reason = _text(summary.get("stop_reason"))
    if last.get("event") == "failed" or reason in _FAILURES:
        return "failed", reason
    if reason:
        return _STATES.get(reason, "stopped"), reason
    if any((folder / name).exists() for name in (JOURNAL_FILE, ADDRESS_FILE, "run_state.pt")):
        return _without_end(folder), ""
    return ("unstarted" if generation and not summary and not progress else "unknown"), ""


def _without_end(folder: Path) -> str:
    """Returns the state of a run that nobody is known to have, and that has not ended."""
    if FolderLock.is_of_another_folder(folder):
        return "copy"
    may_run = (folder / ADDRESS_FILE).exists() and (folder / LOCK_NAME).is_file()
    is_known = not may_run or FolderLock.state(folder) is not None
    return "killed" if is_known else "unknown"  # another user's, or on a file system without locks


def _is_newer(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_mtime >= other.stat().st_mtime
    except OSError:
        return False


def _last_event(folder: Path) -> dict[str, Any]:
    """Returns the last complete event of the journal."""
    return next(newest_events(folder, _TAIL_BYTES), {})


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and not entry.name.startswith(".")
    except OSError:
        return False


def _is_run(folder: Path) -> bool:
    try:
        return any((folder / mark).is_file() for mark in _MARKS)
    except OSError:
        return False


def _generation(folder: Path) -> int:
    try:
        with open_regular(folder / "generation") as file:
            text = file.read(20).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def _behaviors(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    behaviors = document.get("behaviors")
    return [part for part in behaviors.values() if isinstance(part, dict)] if isinstance(behaviors, dict) else []


def _total(behaviors: list[Mapping[str, Any]], key: str) -> int | None:
    values = [int(value) for part in behaviors if (value := finite(part.get(key))) is not None]
    return sum(values) if values else None


def _first(part: Mapping[str, Any], *keys: str) -> float | None:
    return next((value for key in keys if (value := finite(part.get(key))) is not None), None)


def _text(value: object) -> str:
    return printable(value, MAX_TEXT_CHARS) if isinstance(value, str) else ""


def _age(folder: Path, now: float) -> float | None:
    times = list(_times(folder))
    return max(0.0, now - max(times)) if times else None


def _times(folder: Path) -> Iterator[float]:
    for name in (PROGRESS_FILE, SUMMARY_FILE, "run_state.pt", JOURNAL_FILE, "generation"):
        try:
            yield (folder / name).stat().st_mtime
        except OSError:
            continue


_HEADINGS = ("run", "state", "reason", "starts", "steps trained", "of", "return", "best", "age")
_LEFT = frozenset({"run", "state", "reason"})
_MAX_NAME_CHARS = 40


def runs_text(results_dir: Path, *, as_json: bool) -> str:
    """Returns the output of `rollcast runs`.

    Raises:
        UserError: The folder of results cannot be read.
    """
    rows = list_runs(results_dir)
    if as_json:
        return json.dumps([asdict(row) for row in rows], indent=2, allow_nan=False)
    return table(rows) if rows else f"no runs in {results_dir}"


def table(rows: Sequence[RunRow]) -> str:
    """Returns a table with one line for each run."""
    return "\n".join(aligned([_HEADINGS, *map(_cells, rows)], _LEFT))


def _cells(row: RunRow) -> tuple[str, ...]:
    return (
        printable(row.run_id, _MAX_NAME_CHARS),
        row.state,
        printable(row.reason, _MAX_NAME_CHARS),
        str(row.generation) if row.generation else "-",
        _count(row.env_steps_trained),
        _count(row.max_steps),
        number(row.mean_return),
        number(row.best_return),
        age(row.age_seconds),
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def age(seconds: float | None) -> str:
    """Returns a duration in one readable unit, as in ``3 h``."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
