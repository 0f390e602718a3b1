"""Draws curves of seeds as a self-contained SVG that is legible on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray
from rollcast.text import printable

from learner.shared.observe.text import number
from learner.shared.seed_statistics import band

Points = tuple[NDArray[np.float64], NDArray[np.float64]]
"""x and y of a line, ``[P]`` each, with ascending x."""

MAX_POINTS = 100
"""Points of a drawn line; longer curves are interpolated."""

# Hues of Okabe and Ito (2008), "Color universal design", darker or lighter where they need it: each has a contrast of
# at least 3:1 to its background, the limit of WCAG 2.2 (1.4.11) for graphics. Dashes distinguish the lines as well.
LIGHT = ("#0072B2", "#C04A00", "#00795A", "#A03E78", "#8A6100", "#4B59C4", "#30363D")
DARK = ("#56B4E9", "#FF8A4C", "#2FC79A", "#E79AC4", "#E6B422", "#A5B4FF", "#E6EDF3")
LIGHT_PAGE, DARK_PAGE = "#FFFFFF", "#0D1117"
_DASHES = ("", "7 3", "2 3", "9 3 2 3")

WIDTH = 720.0
"""Width of a picture."""
_LEFT, _RIGHT = 68.0, 20.0
_TITLE, _LEGEND_ROW, _PLOT, _FOOT = 26.0, 18.0, 250.0, 66.0
_LETTER, _SWATCH = 6.8, 42.0
_TICKS = 5
_CAPTION = "lines: interquartile mean over seeds · bands: 95 % bootstrap intervals · faint lines: each seed"


@dataclass(frozen=True, slots=True)
class Series:
    """The curves of one group.

    Attributes:
        label: Name in the legend.
        line: Interquartile mean over the seeds, or the only curve.
        low: Lower end of the interval at the x of `line`, ``[P]``; empty for a single curve.
        high: Upper end of it.
        runs: The curve of each seed, each of its own length; empty for a single curve.
    """

    label: str
    line: Points
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    runs: tuple[Points, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot with its own axes.

    Attributes:
        title: Text above it.
        x_label: Quantity of x with its unit.
        y_label: Quantity of y.
        series: What it shows, in the order of the legend.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]


def series_of(label: str, curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Series:
    """Returns the curves of a group with their interquartile mean, which spans the x that all of them have.

    Args:
        label: Name of the group.
        curves: x, ascending, and y of each run.
    """
    points = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in curves]
    runs = tuple(_thinned(x, y) for x, y in points)
    none = np.empty(0)
    if len(points) == 1:
        return Series(label, runs[0], none, none, ())
    grid = _grid([x for x, _ in points])
    if not len(grid):
        return Series(label, (none, none), none, none, runs)
    found = band(np.array([np.interp(grid, x, y) for x, y in points]))
    return Series(label, (grid, found.iqm), found.low, found.high, runs)


def draw(panels: Sequence[Panel], title: str) -> str:
    """Returns the SVG, with one panel below the other.

    Args:
        panels: At least one.
        title: Name of the picture for screen readers; its description is made from the curves.
    """
    tops, height = [], 0.0
    for panel in panels:
        tops.append(height)
        height += _height(panel)
    body = (part for panel, top in zip(panels, tops, strict=True) for part in _panel(panel, top))
    return picture(body, height, title, _description(panels))


def picture(parts: Iterable[str], height: float, title: str, description: str) -> str:
    """Returns an SVG of `WIDTH`.

    Args:
        parts: Its elements.
        height: Its height.
        title: Its name for screen readers.
        description: What they read of it.
    """
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        'aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="12">\n'
        f'<title id="title">{svg_text(title)}</title>\n<desc id="desc">{svg_text(description)}</desc>\n'
        f"<style>{_style()}</style>\n"
        f'<rect class="page" width="{WIDTH:g}" height="{height:g}"/>\n{body}\n</svg>\n'
    )


def _grid(xs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Returns the x of all curves between the latest begin and the earliest end; at most `MAX_POINTS`."""
    first, last = max(x[0] for x in xs), min(x[-1] for x in xs)
    every = np.unique(np.concatenate(xs))
    inside: NDArray[np.float64] = every[(every >= first) & (every <= last)]
    return inside if len(inside) <= MAX_POINTS else np.linspace(first, last, MAX_POINTS)


def _thinned(x: NDArray[np.float64], y: NDArray[np.float64]) -> Points:
    if len(x) <= MAX_POINTS:
        return x, y
    grid = np.linspace(x[0], x[-1], MAX_POINTS)
    return grid, np.interp(grid, x, y)


def _style() -> str:
    """Returns the rules of light and dark pages; ``c0``, ``c1`` and so on set the colors."""

    def rules(page: str, ink: str, faint: str, colors: Sequence[str]) -> str:
        lines = "".join(f".c{place}{{color:{color}}}" for place, color in enumerate(colors))
        return f".page{{fill:{page}}}text{{fill:{ink}}}.grid{{stroke:{faint}}}{lines}"

    dark = rules(DARK_PAGE, "#E6EDF3", "#30363D", DARK)
    return f"{rules(LIGHT_PAGE, '#1F2328', '#D8DEE4', LIGHT)}@media (prefers-color-scheme:dark){{{dark}}}"


def _height(panel: Panel) -> float:
    return _TITLE + _LEGEND_ROW * len(_legend_rows(panel.series)) + _PLOT + _FOOT


def _legend_rows(series: Sequence[Series]) -> list[list[tuple[int, float]]]:
    """Returns the rows of the legend: the place of each series and its x."""
    rows: list[list[tuple[int, float]]] = [[]]
    x = _LEFT
    for place, one in enumerate(series):
        width = _SWATCH + _LETTER * len(one.label)
        if rows[-1] and x + width > WIDTH - _RIGHT:
            rows.append([])
            x = _LEFT
        rows[-1].append((place, x))
        x += width + 12
    return rows


class _Axes:
    """Maps values to the plot's pixels.

    Args:
        panel: What is drawn.
        top: y of the plot's upper edge.
    """

    def __init__(self, panel: Panel, top: float) -> None:
        lines = [points for one in panel.series for points in (one.line, *one.runs)]
        ys = np.concatenate([*(y for _, y in lines), *(limit for one in panel.series for limit in (one.low, one.high))])
        self.top, self.bottom = top, top + _PLOT
        self.right_value = max(float(x[-1]) for x, _ in lines if len(x)) or 1.0
        low, high = float(ys.min()), float(ys.max())
        margin = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
        self.low, self.high = low - margin, high + margin

    def x(self, value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / self.right_value

    def y(self, value: float) -> float:
        return self.bottom - _PLOT * (value - self.low) / (self.high - self.low)

    def points(self, x: Iterable[float], y: Iterable[float]) -> str:
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x, y, strict=True))


def _panel(panel: Panel, top: float) -> Iterator[str]:
    rows = _legend_rows(panel.series)
    yield f'<text x="{_LEFT:g}" y="{top + 18:g}" font-weight="600" font-size="13">{svg_text(panel.title)}</text>'
    for row, places in enumerate(rows):
        for place, x in places:
            y = top + _TITLE + _LEGEND_ROW * row + 10
            yield f'<line {_look(place, 2.5)} x1="{x:.1f}" y1="{y - 4:g}" x2="{x + 26:.1f}" y2="{y - 4:g}"/>'
            yield f'<text x="{x + 32:.1f}" y="{y:g}">{svg_text(panel.series[place].label)}</text>'
    axes = _Axes(panel, top + _TITLE + _LEGEND_ROW * len(rows))
    yield from _frame(panel, axes)
    for place, one in enumerate(panel.series):
        yield from _curves(place, one, axes)


def _frame(panel: Panel, axes: _Axes) -> Iterator[str]:
    end, middle = WIDTH - _RIGHT, (axes.top + axes.bottom) / 2
    for value in ticks(axes.low, axes.high):
        y = axes.y(value)
        yield f'<line class="grid" x1="{_LEFT:g}" y1="{y:.1f}" x2="{end:g}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{tick(value)}</text>'
    for value in ticks(0.0, axes.right_value):
        x = axes.x(value)
        yield f'<text x="{x:.1f}" y="{axes.bottom + 18:g}" text-anchor="middle">{tick(value)}</text>'
    yield (
        f'<text x="{(_LEFT + end) / 2:g}" y="{axes.bottom + 38:g}" text-anchor="middle">{svg_text(panel.x_label)}</text>'
        f'<text transform="translate(14 {middle:g}) rotate(-90)" text-anchor="middle">{svg_text(panel.y_label)}</text>'
    )
    if any(one.runs for one in panel.series):
        yield f'<text x="{_LEFT:g}" y="{axes.bottom + 58:g}" font-size="11">{_CAPTION}</text>'


def _curves(place: int, one: Series, axes: _Axes) -> Iterator[str]:
    """Draws the interval, the faint curves of the seeds, and the line over them."""
    x, y = one.line
    if len(one.low):
        around = f"{axes.points(x, one.low)} {axes.points(x[::-1], one.high[::-1])}"
        yield f'<polygon {_color(place)} points="{around}" fill="currentColor" fill-opacity="0.18"/>'
    for run in one.runs:
        yield f'<polyline {_color(place)} fill="none" stroke="currentColor" stroke-opacity="0.4" points="{axes.points(*run)}"/>'
    if len(x) == 1:
        yield f'<circle {_color(place)} cx="{axes.x(x[0]):.1f}" cy="{axes.y(y[0]):.1f}" r="3" fill="currentColor"/>'
    elif len(x):
        yield f'<polyline {_look(place, 2.5)} points="{axes.points(x, y)}"/>'


def _color(place: int) -> str:
    return f'class="c{place % len(LIGHT)}"'


def _look(place: int, width: float) -> str:
    dash = _DASHES[place % len(_DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'{_color(place)} fill="none" stroke="currentColor" stroke-width="{width:g}"{dashes}'


def ticks(low: float, high: float) -> list[float]:
    """Returns the marks of an axis: about five multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda factor: abs(math.log(factor * power / rough)))
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def tick(value: float) -> str:
    """Returns the text of a mark."""
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if limit <= abs(value) < 1e9:
            return f"{value / (1e6 if unit == 'M' else 1e3):g}{unit}"
    return f"{value:g}"


def _description(panels: Sequence[Panel]) -> str:
    texts = []
    for panel in panels:
        ends = [text for one in panel.series if (text := _end(one, panel.x_label))]
        texts.append(f"{panel.title}: {panel.y_label} against {panel.x_label}. {'; '.join(ends)}.")
    return " ".join(texts)


def _end(one: Series, x_label: str) -> str:
    x, y = one.line
    if not len(x):
        return ""
    limits = f", 95 % interval {number(float(one.low[-1]))} to {number(float(one.high[-1]))}" if len(one.low) else ""
    seeds = f", interquartile mean of {len(one.runs)} seeds" if one.runs else ""
    return f"{one.label}{seeds}: {number(float(y[-1]))}{limits}, at {number(float(x[-1]))} {x_label}"


def svg_text(text: str) -> str:
    """Returns text as the content of an element, without control characters."""
    return escape(printable(text, len(text)))
