"""Writes the page of a sweep: one file of HTML, with its curves, the importance of each setting, and a table of the trials."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from rollcast.text import printable

from learner.shared.observe.curves import Curve
from learner.shared.observe.text import number
from learner.start.line_chart import Panel, draw, series_of

RUNNING, ENDED, PRUNED, FAILED, WAITING = "running", "ended", "ended early", "failed", "waiting"
"""States of trials."""
MOST_CURVES: Final = 6
"""Trials in the large plot."""
_MAX_CHARS: Final = 60
_SPARK_WIDTH, _SPARK_HEIGHT = 120.0, 22.0
_STYLE: Final = """
:root { color-scheme: light dark; --page: #ffffff; --soft: #f4f5f7; --line: #dde1e7; --text: #14181f; --faint: #5a6472; --curve: #1d63d8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --soft: #161a21; --line: #2a303b; --text: #e9ecf1; --faint: #9aa4b2; --curve: #62a8ff; }
}
body { margin: 0 auto; max-width: 1200px; padding: 20px; background: var(--page); color: var(--text);
  font: 14px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 20px; } h2 { font-size: 15px; margin-top: 28px; } p { color: var(--faint); }
svg { max-width: 100%; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { padding: 4px 12px 4px 0; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--faint); font-weight: 500; } a { color: var(--curve); } tr.best td { background: var(--soft); font-weight: 600; }
.bar { display: inline-block; height: 10px; background: var(--curve); border-radius: 3px; vertical-align: middle; }
.spark { fill: none; stroke: var(--curve); stroke-width: 1.5; }
"""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial.

    Attributes:
        folder: Name of its run folder, its number in the study.
        state: One of the states of this module.
        value: Its objective; None unless it has ended by itself.
        settings: The sampled settings, by name.
        curve: Its mean returns; None before the first.
    """

    folder: str
    state: str
    value: float | None
    settings: Mapping[str, Any]
    curve: Curve | None


def page(
    study: str,
    rows: Sequence[TrialRow],
    terms: Mapping[str, Any],
    importance: Mapping[str, float],
    *,
    is_lower_better: bool,
    refresh_seconds: float | None,
) -> str:
    """Returns the page.

    Args:
        study: Name of the study.
        rows: Its trials, in their order.
        terms: Its objective, and the space of each setting.
        importance: Share of each setting; empty if unknown.
        is_lower_better: Whether the objective is to be small.
        refresh_seconds: Interval at which a browser reads the page again; None when the sweep has ended.
    """
    sign = -1.0 if is_lower_better else 1.0
    ranked = sorted((row for row in rows if row.value is not None), key=lambda row: -sign * (row.value or 0.0))
    listed = ", ".join(f"{count} {state}" for state, count in Counter(row.state for row in rows).items())
    refresh = "" if refresh_seconds is None else f'<meta http-equiv="refresh" content="{refresh_seconds:g}">'
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">{refresh}',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(study)}: sweep</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>Sweep {_text(study)}</h1>",
        f"<p>{listed or 'no trial'}; objective: {_text(terms['objective'])}</p>",
        *_curves(rows, ranked, sign),
        *_importances(importance),
        *_table(rows, tuple(terms["space"]), ranked[0].folder if ranked else None),
        "<h2>Spaces</h2>\n<p>"
        + "<br>".join(f"{_text(f'{name}={space}')}" for name, space in terms["space"].items())
        + "</p>",
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _curves(rows: Sequence[TrialRow], ranked: Sequence[TrialRow], sign: float) -> Iterator[str]:
    """Yields the plot of the best objective so far, and of the returns of the best trials."""
    values = np.array([row.value for row in rows if row.value is not None])
    panels = []
    if len(values):
        best = sign * np.maximum.accumulate(sign * values)
        numbers = [float(place) for place in range(1, len(values) + 1)]
        panels.append(
            Panel("best so far", "trials ended", "objective", (series_of("best", [(numbers, best.tolist())]),))
        )
    shown = [row for row in (ranked or rows) if row.curve is not None][:MOST_CURVES]
    if shown:
        series = tuple(
            series_of(f"trial {row.folder}", [(row.curve.steps, row.curve.values)])
            for row in shown
            if row.curve is not None
        )
        title = "the best trials" if ranked else "the first trials"
        panels.append(Panel(title, "environment steps", "mean training return", series))
    if panels:
        yield draw(panels, "curves of the sweep")


def _importances(importance: Mapping[str, float]) -> Iterator[str]:
    if not importance:
        return
    yield "<h2>Importance</h2>\n<p>Share of each setting in reaching the best tenth of the trials (PED-ANOVA).</p>\n<table>"
    for name, share in sorted(importance.items(), key=lambda item: -item[1]):
        bar = f'<span class="bar" style="width:{200 * share:.0f}px"></span>'
        yield f"<tr><th>{_text(name)}</th><td>{100 * share:.0f} %</td><td>{bar}</td></tr>"
    yield "</table>"


def _table(rows: Sequence[TrialRow], names: Sequence[str], best: str | None) -> Iterator[str]:
    """Yields the table of the trials, the newest first."""
    heads = "".join(f"<th>{_text(name)}</th>" for name in ("trial", "state", "objective", "return", "curve", *names))
    yield f'<h2>Trials</h2>\n<div class="scroll">\n<table>\n<tr>{heads}</tr>'
    drawn = [row.curve for row in rows if row.curve is not None]
    low = min((min(curve.values) for curve in drawn), default=0.0)
    high = max((max(curve.values) for curve in drawn), default=0.0)
    end = max((curve.steps[-1] for curve in drawn), default=0)
    for row in reversed(rows):
        newest = None if row.curve is None else row.curve.values[-1]
        cells = [
            f'<a href="{quote(row.folder)}/">{_text(row.folder)}</a>',
            _text(row.state),
            number(row.value),
            number(newest),
            "" if row.curve is None else _spark(row.curve, low, high, end),
            *(_text(_shown(row.settings.get(name))) for name in names),
        ]
        yield f"<tr{' class=best' if row.folder == best else ''}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>\n</div>"


def _spark(curve: Curve, low: float, high: float, end: float) -> str:
    """Returns a curve as a small picture; those of all trials have the same axes."""
    kept = np.linspace(0, len(curve.steps) - 1, min(60, len(curve.steps))).astype(int)
    points = " ".join(
        f"{_SPARK_WIDTH * curve.steps[place] / (end or 1):.1f},"
        f"{_SPARK_HEIGHT - 1 - (_SPARK_HEIGHT - 2) * (curve.values[place] - low) / (high - low or 1.0):.1f}"
        for place in kept
    )
    return f'<svg width="{_SPARK_WIDTH:g}" height="{_SPARK_HEIGHT:g}" aria-hidden="true"><polyline class="spark" points="{points}"/></svg>'


def _shown(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _text(value: object) -> str:
    return html.escape(printable(str(value), _MAX_CHARS))
