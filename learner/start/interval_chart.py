"""Draws values with their intervals, one row each, as a self-contained SVG that is legible on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from learner.shared.observe.text import number
from learner.start.line_chart import style, svg_text, tick, ticks

_WIDTH: Final = 720.0
_TOP, _ROW, _FOOT, _RIGHT = 40.0, 22.0, 56.0, 24.0
_LETTER, _MOST_LEFT = 6.8, 300.0
_CAP: Final = 4.0


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its interval.

    Attributes:
        label: Name of its row.
        value: The value.
        low, high: Ends of the interval.
    """

    label: str
    value: float
    low: float
    high: float


def draw_intervals(values: Sequence[Value], title: str, label: str) -> str:
    """Returns the SVG.

    Args:
        values: At least one, in the order of the rows.
        title: Text above the rows.
        label: Quantity and unit of the values.
    """
    left = min(_MOST_LEFT, 24.0 + _LETTER * max(len(each.label) for each in values))
    low, high = min(each.low for each in values), max(each.high for each in values)
    margin = 0.04 * (high - low) or 1.0
    low, high = low - margin, high + margin
    bottom = _TOP + _ROW * len(values)
    height = bottom + _FOOT

    def x(value: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * (value - low) / (high - low)

    def parts() -> Iterator[str]:
        yield f'<text x="{left:g}" y="22" font-weight="600" font-size="13">{svg_text(title)}</text>'
        for mark in ticks(low, high):
            yield f'<line class="grid" x1="{x(mark):.1f}" y1="{_TOP:g}" x2="{x(mark):.1f}" y2="{bottom:g}"/>'
            yield f'<text x="{x(mark):.1f}" y="{bottom + 18:g}" text-anchor="middle">{tick(mark)}</text>'
        for place, each in enumerate(values):
            y = _TOP + _ROW * (place + 0.5)
            ends = " ".join(f"M{x(end):.1f} {y - _CAP:g}V{y + _CAP:g}" for end in (each.low, each.high))
            line = f"M{x(each.low):.1f} {y:g}H{x(each.high):.1f} {ends}"
            yield f'<text x="{left - 10:g}" y="{y + 4:g}" text-anchor="end">{svg_text(each.label)}</text>'
            yield f'<path class="c0" fill="none" stroke="currentColor" stroke-width="1.5" d="{line}"/>'
            yield f'<circle class="c0" cx="{x(each.value):.1f}" cy="{y:g}" r="4" fill="currentColor"/>'
        middle = (left + _WIDTH - _RIGHT) / 2
        yield f'<text x="{middle:g}" y="{bottom + 40:g}" text-anchor="middle">{svg_text(label)}</text>'

    told = "; ".join(
        f"{each.label}: {number(each.value)}, {number(each.low)} to {number(each.high)}" for each in values
    )
    body = "\n".join(parts())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        'aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="12">\n'
        f'<title id="title">{svg_text(title)}</title>\n<desc id="desc">{svg_text(f"{label}. {told}.")}</desc>\n'
        f"<style>{style()}</style>\n"
        f'<rect class="page" width="{_WIDTH:g}" height="{height:g}"/>\n{body}\n</svg>\n'
    )
