"""Keeps the learning curves of gates, drawn as `rollcast compare` does, and the page that shows them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from learner.start.line_chart import Panel, draw, series_of
from tests.tools.gates.gate import Gate

CURVES = Path(__file__).with_name("curves")
"""The pictures, and a page with them and with the commands of each gate."""
PAGE = CURVES / "README.md"
_INTRODUCTION = """\
# Learning curves of the gates

Made by `make gates GATES=--table` from the newest results, as [the table](../README.md#gates). Lines are interquartile means over
seeds, bands 95 % bootstrap intervals, and faint lines single seeds. The commands are those of the first seed, each in a terminal of
its own; the others differ in `--seed`. `make gates GATES=NAME` runs a gate with all its seeds.
"""


def keep(folder: Path, gates: Iterable[Gate], kept: Path = CURVES) -> list[Path]:
    """Draws the gates of a folder whose results have curves; returns the files."""
    drawn = []
    for gate in gates:
        path = folder / f"{gate.name}.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        if any(run["curve"] for runs in content["arms"].values() for run in runs):
            kept.mkdir(exist_ok=True)
            drawn.append(kept / f"{gate.name}.svg")
            drawn[-1].write_text(picture(content), encoding="utf-8")
    return drawn


def picture(content: Mapping[str, Any]) -> str:
    """Returns the SVG of a gate's JSON file: training return over environment steps, a line and a band for each arm."""
    title = content["title"].replace("`", "")
    arms = [
        series_of(arm, [_columns(run["curve"]) for run in runs if run["curve"]])
        for arm, runs in content["arms"].items()
        if any(run["curve"] for run in runs)
    ]
    return draw([Panel(title, "environment steps", "mean training return", tuple(arms))], f"Learning curves of {title}")


def _columns(curve: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [step for step, _ in curve], [value for _, value in curve]


def page(rows: Sequence[Mapping[str, Any]], kept: Path = CURVES) -> str:
    """Returns the page: what each gate asks, its picture and its commands.

    Args:
        rows: Of the compact file of results.
        kept: Where the pictures are.
    """
    parts = [_INTRODUCTION]
    for row in rows:
        parts.append(f"## {row['gate']}\n\n{row['title']}: {row['asks']}\n")
        if (kept / f"{row['gate']}.svg").exists():
            parts.append(f"![Learning curves of {row['gate']}]({row['gate']}.svg)\n")
        lines = dict.fromkeys(line for commands in row["commands"].values() for line in commands)
        parts.append("\n".join(["```sh", *lines, "```\n"]))
    return "\n".join(parts)
