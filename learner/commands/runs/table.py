"""Shows runs: as a table for people, as JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from learner.commands.runs.listing import RunRow, list_runs
from learner.observe.text import number, printable

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
