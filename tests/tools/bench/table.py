"""Formats measurements as tables, and writes them as a JSON document."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.tools.bench.measurement import OTHERS_CORES, Series, Spread

NOTHING: Final = "-"
IDLE_CORES: Final = 0.2
"""Cores that are busy on any machine."""
PAIR_HEADS: Final = ("first", "second", "second / first, medians", "second / first, pairs")


@dataclass(frozen=True, slots=True)
class Column:
    """A figure in a table."""

    title: str
    figure: str
    form: str
    factor: float = 1.0

    def cell(self, series: Series) -> str:
        """Returns the median and range of a series."""
        return cell(series.spread(self.figure), self.form, self.factor)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two series that are compared."""

    title: str
    first: str
    second: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A table.

    Attributes:
        legend: What its figures mean.
        columns: Figures of each series; without them there is no row for each series.
        pairs: Series that are compared, where both were measured.
    """

    legend: str
    columns: tuple[Column, ...] = ()
    pairs: tuple[Pair, ...] = ()

    def render(self, results: Mapping[str, Series]) -> str:
        """Returns the tables, what their figures mean, and remarks."""
        parts = [self._alone(results), self._compared(results), self.legend, remarks(results)]
        return "\n\n".join(part for part in parts if part)

    def _alone(self, results: Mapping[str, Series]) -> str:
        rows = [("", *(column.title for column in self.columns))]
        rows += [(each.title, *(column.cell(each) for column in self.columns)) for each in results.values()]
        return aligned(rows) if self.columns else ""

    def _compared(self, results: Mapping[str, Series]) -> str:
        rows: list[tuple[str, ...]] = [("", *PAIR_HEADS)]
        for pair in self.pairs:
            if not {pair.first, pair.second} <= results.keys():
                continue
            first, second = results[pair.first], results[pair.second]
            for column in pair.columns:
                found = compare(first, second, column.figure)
                ratios = ("", "") if found is None else (f"{found[0]:.3f}", cell(found[1], ".3f"))
                title = f"{pair.title}, {column.title}"
                rows.append((title, column.cell(first), column.cell(second), *ratios))
        return aligned(rows) if len(rows) > 1 else ""


def compare(first: Series, second: Series, figure: str) -> tuple[float, Spread | None] | None:
    """Returns a figure of the second series over that of the first.

    Returns:
        The ratio of the medians, and that of each round that both have, None without such a round; None if a series has
        no figures, or zeros.
    """
    ours, theirs = _by_round(first, figure), _by_round(second, figure)
    if not ours or not theirs or not all(ours.values()):
        return None
    ratios = [theirs[index] / value for index, value in ours.items() if index in theirs]
    return median(theirs.values()) / median(ours.values()), Spread.of(ratios) if ratios else None


def _by_round(series: Series, figure: str) -> dict[int, float]:
    return {each.round_index: each.values[figure] for each in series.rounds if figure in each.values}


def remarks(results: Mapping[str, Series]) -> str:
    """Returns what could not be measured, notes, and whether others used the machine; empty if there is nothing."""
    lines = []
    for series in results.values():
        if series.unavailable is not None:
            lines.append(f"{series.title}: not measured: {series.unavailable}")
        lines += [f"{series.title}: {failure}" for failure in series.failures]
        notes = [figures.note for figures in series.rounds if figures.note]
        lines += [f"{series.title}: {note}" for note in dict.fromkeys(notes)]
    busy = [spread.highest for series in results.values() if (spread := series.spread(OTHERS_CORES)) is not None]
    if busy and max(busy) > IDLE_CORES:
        lines.append(f"others used up to {max(busy):.1f} cores meanwhile: the figures are lower than they could be")
    return "\n".join(lines)


def cell(spread: Spread | None, form: str, factor: float = 1.0) -> str:
    """Returns the median and, of values that are not written alike, the range."""
    if spread is None:
        return NOTHING
    text, lowest, highest = (f"{value * factor:{form}}" for value in (spread.median, spread.lowest, spread.highest))
    return text if lowest == highest else f"{text} ({lowest}-{highest})"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns lines with columns of equal width, the first one to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Returns a description of the machine."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": names[0] if names else platform.processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def document(results: Mapping[str, Series], facts: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of `bench.json`: every figure of every round."""
    contestants = {name: asdict(series) for name, series in results.items()}
    return {"machine": dict(facts), "options": dict(options), "contestants": contestants}


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a document; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
