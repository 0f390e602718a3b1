"""Draws the curves of runs beside each other: `rollcast-learner compare`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


# Okabe and Ito (2008), "Color universal design": told apart with any kind of colour vision; their yellow, which is faint
# on white, is left out.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":")
_LABELS = {RETURN_KEY: "mean episode return", "Environment/Episode Length": "mean episode length"}
_WIDTH_INCHES = 12.0
_HEIGHT_INCHES = 4.8
_ROW_INCHES = 0.22
_LETTER_INCHES = 0.09
_LINE_INCHES = 0.7
"""Of the legend, which stands below the curves and makes the picture higher instead of the curves smaller."""
_SMOOTHED = 9
"""Points in the running mean of a curve that has many."""
_MAX_RAW = 45
"""Points of the longest curve that is drawn as it is."""


def compare(results_dir: Path, runs: Sequence[str], key: str, out: Path) -> Path:
    """Draws a statistic of runs against steps and against time, and returns the picture's path.

    Args:
        results_dir: the folder of all runs.
        runs: names of runs in it, or paths of run folders.
        key: of the statistic.
        out: the PNG file.

    Raises:
        UserError: a run has no such curve, matplotlib is missing, or the file cannot be written.
    """
    if out.suffix.lower() != ".png":
        raise UserError(ExitCode.USAGE, f"--out {out} must end in .png, the one kind of picture there is")
    curves = [curve for name in dict.fromkeys(runs) for curve in read_curves(_folder(results_dir, name), key)]
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra, and a second to import
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UserError(
            ExitCode.MISSING_EXTRA,
            f"compare needs the module {error.name!r}; in the checkout: pip install '.[plots]'",
        ) from None
    with mpl.rc_context({"text.usetex": False, "text.parse_math": False, "font.size": 10}):
        names = _names(curves)
        columns = _legend_columns(names)
        height = _HEIGHT_INCHES + _ROW_INCHES * -(-len(names) // columns)
        figure: Any = Figure(figsize=(_WIDTH_INCHES, height), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)  # never a window
        _draw(figure, curves, names, key)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        try:
            figure.savefig(out, format="png")
        except OSError as error:
            raise UserError(ExitCode.USAGE, f"{out} cannot be written: {error.strerror or error}") from None
    return out


def _folder(results_dir: Path, name: str) -> Path:
    path = Path(name)
    return path if len(path.parts) > 1 else results_dir / name


def _legend_columns(names: Sequence[str]) -> int:
    widest = max(len(name) for name in names) * _LETTER_INCHES + _LINE_INCHES
    return max(1, min(len(names), int(_WIDTH_INCHES / widest)))


def _draw(figure: Any, curves: Sequence[Curve], names: Sequence[str], key: str) -> None:
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    unit, unit_seconds = _time_unit(max((curve.seconds[-1] for curve in curves), default=0.0))
    for place, (curve, name) in enumerate(zip(curves, names, strict=True)):
        look = {
            "color": _COLORS[place % len(_COLORS)],
            "linestyle": _STYLES[place // len(_COLORS) % len(_STYLES)],
            "marker": "o" if len(curve.values) == 1 else None,
        }
        _line(by_steps, curve.steps, curve.values, name, look)
        _line(by_time, [second / unit_seconds for second in curve.seconds], curve.values, name, look)
    by_steps.set_xlabel("environment steps trained")
    by_time.set_xlabel(f"time since the first actor joined ({unit})")
    is_smoothed = any(len(curve.values) > _MAX_RAW for curve in curves)
    smoothing = f"\nrunning mean of {_SMOOTHED} points over the points themselves" if is_smoothed else ""
    by_steps.set_ylabel(printable(_LABELS.get(key, key), 60) + smoothing)
    by_steps.xaxis.set_major_formatter(_in_thousands)
    for axes in (by_steps, by_time):
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(left=0)


def _line(axes: Any, x: Sequence[float], y: Sequence[float], name: str, look: dict[str, Any]) -> None:
    if len(y) <= _MAX_RAW:
        axes.plot(x, y, label=name, linewidth=1.8, **look)
        return
    axes.plot(x, y, color=look["color"], linewidth=0.8, alpha=0.3)
    axes.plot(x, _running_mean(y), label=name, linewidth=1.8, **look)


def _running_mean(values: Sequence[float]) -> list[float]:
    """Returns the mean of each value with those around it: fewer at the ends."""
    half = _SMOOTHED // 2
    windows = (values[max(0, place - half) : place + half + 1] for place in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _names(curves: Sequence[Curve]) -> list[str]:
    """Returns what the legend says: the run, and the behavior where a name alone would not do."""
    several = len({curve.behavior for curve in curves}) > 1
    return [printable(f"{curve.run_id} · {curve.behavior}" if several else curve.run_id, 40) for curve in curves]


def _time_unit(seconds: float) -> tuple[str, float]:
    if seconds >= 3 * 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if seconds >= 300 else ("seconds", 1.0)


def _in_thousands(value: float, _position: int) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"
