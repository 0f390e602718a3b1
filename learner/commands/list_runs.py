"""Reads what runs there are, in which state, and how far: from small files alone, so that hundreds take no second."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from learner.checkpoints.lock import FolderLock
from learner.common.exits import ExitCode, UserError
from learner.common.files import open_regular
from learner.observe.journal import JOURNAL_FILE
from learner.observe.summary import PROGRESS_FILE, SUMMARY_FILE, finite, read_small_json
from learner.observe.text import MAX_TEXT_CHARS, number, printable

_MARKS = ("generation", "configuration.yaml", SUMMARY_FILE, "run_state.pt", PROGRESS_FILE)
"""A folder with one of these is a run's."""
_TAIL_BYTES = 8192
_STATES = {"target_return": "finished", "max_steps": "finished", "max_wall_seconds": "finished"}
_FAILURES = frozenset({"trainer_failed", "error"})


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run.

    Attributes:
        run_id: the name of its folder.
        state: ``running``, ``waiting`` or ``paused`` while a learner has the folder; else ``finished``, ``stopped`` (it
            can go on), ``failed``, ``killed`` (its learner went without a word), ``unstarted`` (no start of it came as far as to listen), or
            ``unknown``.
        reason: why it ended, empty if nobody said.
        generation: how many times its learner was started; 0 if nobody said.
        env_steps_trained: all behaviors together; None if nobody said.
        max_steps: of them together; None if nobody said.
        mean_return: of the behavior that has one, the first; None if there is none.
        best_return: the best mean return it has had; None if there is none.
        age_seconds: since something of it was written last.
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
    """Returns the runs in a folder, the one that was last written to first.

    Folders and files of any content are read without an error.

    Raises:
        UserError: the folder cannot be read.
    """
    try:
        with os.scandir(results_dir) as entries:
            folders = [Path(entry.path) for entry in entries if _is_folder(entry)]
    except OSError as error:
        raise UserError(
            ExitCode.USAGE, f"{results_dir} cannot be read ({error.strerror}); name the folder with --results-dir"
        ) from None
    now = time.time()
    rows = [read_run(folder, now) for folder in folders if _is_run(folder)]
    return sorted(rows, key=lambda row: (row.age_seconds is None, row.age_seconds or 0.0, row.run_id))


def read_run(folder: Path, now: float) -> RunRow:
    """Returns what the files of a run say.

    Args:
        folder: the run's.
        now: seconds since the epoch.
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


def _state(folder: Path, generation: int, summary: Mapping[str, Any], progress: Mapping[str, Any]) -> tuple[str, str]:
    if FolderLock.is_held(folder):
        told = progress.get("state") if progress.get("generation") == generation else None
        return (told if told in ("waiting", "paused") else "running"), ""
    last = _last_event(folder)
    reason = ""
    if last.get("event") in ("finished", "failed") and last.get("generation") == generation:
        reason = _text(last.get("reason"))
    elif summary.get("generation") == generation:
        reason = _text(summary.get("stop_reason"))
    if last.get("event") == "failed" or reason in _FAILURES:
        return "failed", reason
    if reason:
        return _STATES.get(reason, "stopped"), reason
    if any((folder / name).exists() for name in (JOURNAL_FILE, "address.json", "run_state.pt")):
        return "killed", ""
    return ("unstarted" if generation and not summary and not progress else "unknown"), ""


def _last_event(folder: Path) -> dict[str, Any]:
    """Returns the last whole event of the journal."""
    try:
        with open_regular(folder / JOURNAL_FILE) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            return event
    return {}


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
_LEFT = frozenset({0, 1, 2})
_MAX_NAME_CHARS = 40


def runs_text(results_dir: Path, *, as_json: bool) -> str:
    """Returns what `rollcast-learner runs` prints.

    Raises:
        UserError: the folder of results cannot be read.
    """
    rows = list_runs(results_dir)
    if as_json:
        return json.dumps([asdict(row) for row in rows], indent=2, allow_nan=False)
    return table(rows) if rows else f"no runs in {results_dir}"


def table(rows: Sequence[RunRow]) -> str:
    """Returns a table with one line for each run."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if place in _LEFT else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


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
    """Returns a time in the one unit that people would use, as in ``3 h``."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
