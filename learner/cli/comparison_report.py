"""Shows a comparison of runs: as tables, as JSON, and as curves in an SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollcast.text import printable

from learner.cli.compare_runs import Report, Request, Row, Scored
from learner.cli.run_groups import Group
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, open_regular, write_output
from learner.shared.observe.curves import RETURN_KEY, Curve
from learner.shared.observe.text import aligned, number
from learner.shared.seed_statistics import CONFIDENCE, REPLICATES, Interval
from learner.start.line_chart import Panel, draw, series_of

BY_STEPS, BY_TIME = "steps", "time"
_LABELS = {
    RETURN_KEY: "mean training return",
    "Environment/Episode Length": "mean training episode length",
    "Evaluation/Cumulative Reward": "mean evaluation return",
    "Evaluation/Episode Length": "mean evaluation episode length",
}
_HEADINGS = ("group", "seeds", "IQM", "95 % interval", "median", "mean", "min", "max", "steps")
_BETTER = "better than the first"
_SVG = b"<svg"
_MAX_DIFFERENCES = 8
_MAX_TITLE_CHARS = 60
_MAX_VALUE_CHARS = 24


def report_text(report: Report) -> str:
    """Returns the tables for people."""
    when = "at the end of each run" if report.request.at_steps is None else f"at step {report.request.at_steps:,}"
    what = f"{_label(report.request)} {when}"
    parts = [
        [f"{printable(one.behavior)}: {what}", *_table(one.rows), *_difference_lines(one.groups)]
        for one in report.comparisons
    ]
    if report.together:
        parts.append([f"all behaviors: normalized {what}", *_table(report.together)])
    if report.notes:
        parts.append([f"note: {note}" for note in report.notes])
    return "\n\n".join("\n".join(lines) for lines in parts)


def report_json(report: Report) -> str:
    """Returns the comparison with all curves as JSON."""
    request = report.request
    document = {
        "key": request.key,
        "by": request.by,
        "at_steps": request.at_steps,
        "episodes": request.episodes,
        "confidence": CONFIDENCE,
        "replicates": REPLICATES,
        "behaviors": {
            one.behavior: [_group_document(*pair) for pair in zip(one.scored, one.rows, strict=True)]
            for one in report.comparisons
        },
        "normalized": [asdict(row) for row in report.together],
        "notes": report.notes,
    }
    return json.dumps(document, indent=2, allow_nan=False)


def write_svg(report: Report, x: str, path: Path) -> None:
    """Writes the curves of a comparison, one panel for each behavior.

    Args:
        report: The comparison.
        x: `BY_STEPS` or `BY_TIME`.
        path: Path of the file.

    Raises:
        UserError: The file cannot be written, or holds something else.
    """
    _require_svg(path)
    label = _label(report.request)
    curves = [member.curve for one in report.comparisons for group in one.groups for member in group.members]
    unit, unit_seconds = _time_unit(max(curve.seconds[-1] for curve in curves))

    def xs(curve: Curve) -> Sequence[float]:
        return curve.steps if x == BY_STEPS else [seconds / unit_seconds for seconds in curve.seconds]

    panels = [
        Panel(
            title=printable(one.behavior, _MAX_TITLE_CHARS),
            x_label="environment steps" if x == BY_STEPS else f"{unit} since the first actor joined",
            y_label=label,
            series=tuple(
                series_of(group.label, [(xs(member.curve), member.curve.values) for member in group.members])
                for group in one.groups
            ),
        )
        for one in report.comparisons
    ]
    svg = draw(panels, f"{label} of {', '.join(panel.title for panel in panels)}")
    try:
        write_output(path, svg.encode())
    except WriteFailed as error:
        raise UserError(ExitCode.NOT_SAVED, f"{path} cannot be written: {error.reason}") from None


def _require_svg(path: Path) -> None:
    """Refuses to replace a file that is no picture of this kind.

    Raises:
        UserError: It is none.
    """
    try:
        with open_regular(path) as file:
            head = file.read(len(_SVG))
    except OSError:  # there is none, or writing says what is wrong
        return
    if head not in {b"", _SVG}:
        raise UserError(ExitCode.USAGE, f"--svg {path} exists and is no SVG: choose another file, or remove it")


def _label(request: Request) -> str:
    return printable(_LABELS.get(request.key, request.key), _MAX_TITLE_CHARS)


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [_HEADINGS, *map(_cells, rows)]
    if len(rows) > 1:
        lines = [(*line, better) for line, better in zip(lines, (_BETTER, *map(_better, rows)), strict=True)]
    return aligned(lines, {"group"})


def _cells(row: Row) -> tuple[str, ...]:
    low, high = row.steps
    steps = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    numbers = map(number, (row.median, row.mean, row.min, row.max))
    return (row.group, str(row.seeds), number(row.iqm), _interval(row.interval), *numbers, steps)


def _better(row: Row) -> str:
    return "-" if row.improvement is None else f"{row.improvement:.2f} {_interval(row.improvement_interval)}"


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"[{number(interval.low)}, {number(interval.high)}]"


def _difference_lines(groups: Sequence[Group]) -> Iterator[str]:
    """Yields the settings in which the groups differ, with the values in the order of the groups."""
    keys = list(groups[0].differences)
    for key in keys[:_MAX_DIFFERENCES]:
        values = " | ".join(printable(group.differences[key], _MAX_VALUE_CHARS) for group in groups)
        yield f"  {printable(key, _MAX_TITLE_CHARS)}: {values}"
    if len(keys) > _MAX_DIFFERENCES:
        yield f"  and {len(keys) - _MAX_DIFFERENCES} more settings, which --json has"


def _group_document(scored: Scored, row: Row) -> dict[str, Any]:
    members = scored.group.members
    series = series_of(scored.group.label, [(member.curve.steps, member.curve.values) for member in members])
    steps, middle = series.line
    curve = {"steps": steps, "iqm": middle, "low": series.low, "high": series.high}
    return {
        **asdict(row),
        "settings": dict(scored.group.differences),
        "scores": scored.scores.tolist(),
        "runs": [
            {
                "run": str(member.folder),
                "seed": int(member.seed) if member.seed.isdecimal() else None,
                "steps": member.curve.steps,
                "values": member.curve.values,
            }
            for member in members
        ],
        "curve": {name: values.tolist() for name, values in curve.items()},
    }


def _time_unit(seconds: float) -> tuple[str, float]:
    if seconds >= 3 * 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if seconds >= 300 else ("seconds", 1.0)
