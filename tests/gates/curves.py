"""Draws the learning curves of a gate's arms: a small SVG file for the README, out of the gate's JSON file."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.gates.gate import Gate

CURVES = Path(__file__).with_name("curves")
"""What the README shows."""

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 36, 40, 40
COLORS = ("#1f6fb4", "#c4501b", "#3b7d3a", "#7a4f9a")
TICKS = 5


def keep(folder: Path, gates: Iterable[Gate], kept: Path = CURVES) -> list[Path]:
    """Draws the gates of a folder whose results have curves; returns the files."""
    drawn = []
    for gate in gates:
        path = folder / f"{gate.name}.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        if any(run.get("curve") for runs in content["arms"].values() for run in runs):
            kept.mkdir(exist_ok=True)
            drawn.append(kept / f"{gate.name}.svg")
            drawn[-1].write_text(draw(content), encoding="utf-8")
    return drawn


def draw(content: Mapping[str, Any]) -> str:
    """Returns an SVG: mean return of the last 100 episodes over steps, a color an arm, a line a seed.

    Args:
        content: of a gate's JSON file.
    """
    points = [point for runs in content["arms"].values() for run in runs for point in run["curve"]]
    right, high = _round_up(max(step for step, _ in points)), _round_up(max(value for _, value in points))
    parts = [*_axes(right, high), *_legend(content)]
    for color, runs in zip(COLORS, content["arms"].values(), strict=False):
        for run in runs:
            line = " ".join(f"{_x(step, right):.1f},{_y(value, high):.1f}" for step, value in run["curve"])
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _axes(right: float, high: float) -> Iterable[str]:
    bottom, end = _y(0.0, high), WIDTH - RIGHT
    for tick in range(TICKS + 1):
        step, value = right * tick / TICKS, high * tick / TICKS
        x, y = _x(step, right), _y(value, high)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#444444">{value:g}</text>'
        yield f'<text x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle" fill="#444444">{step:,.0f}</text>'
    yield f'<text x="{(LEFT + end) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle" fill="#444444">environment steps</text>'


def _legend(content: Mapping[str, Any]) -> Iterable[str]:
    title = f"{content['title']}: mean return of 100 episodes, {len(content['seeds'])} seeds"
    yield f'<text x="{LEFT}" y="16" fill="#222222">{escape(title.replace("`", ""))}</text>'
    for place, (color, arm) in enumerate(zip(COLORS, content["arms"], strict=False)):
        x = LEFT + 150 * place
        yield f'<line x1="{x}" y1="28" x2="{x + 20}" y2="28" stroke="{color}" stroke-width="3"/>'
        yield f'<text x="{x + 26}" y="32" fill="#222222">{escape(arm)}</text>'


def _x(step: float, right: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / right


def _y(value: float, high: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(0.0, value) / high


def _round_up(value: float) -> float:
    """Returns the next larger number of two digits and zeros, so that ticks are plain numbers."""
    unit = 10.0 ** max(0, len(str(int(value))) - 2)
    return max(float(TICKS), -(-value // (TICKS * unit)) * TICKS * unit)
