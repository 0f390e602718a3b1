"""Formats learner CPU seconds and compares two checkouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from tests.tools.bench.learner_cpu import CPU_SECONDS, ROWS, UPDATES, WARM_UP_SHARE, against_name
from tests.tools.bench.measurement import STEPS_PER_SECOND, Series, Spread
from tests.tools.bench.table import aligned, cell, remarks

_TITLE: Final = "learner CPU s per 100,000 steps"
_SECONDS: Final = ".2f"
_RATIO: Final = ".3f"
_UPDATES: Final = ",.1f"
_LEGEND: Final = (
    "CPU seconds of the learner process, user and system, all threads, per 100,000 trained steps; start-up and the first "
    f"{WARM_UP_SHARE:.0%} of the steps are left out"
)
_RATIO_LEGEND: Final = "speed: seconds of the other over those of this checkout, so more is better for this one"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure on two sides, where less is better.

    Attributes:
        of_medians: Median of the other side over that of this one.
        of_pairs: The same ratio round by round, over the rounds that both sides have; None if there is none.
    """

    of_medians: float
    of_pairs: Spread | None


def compare(ours: Series, theirs: Series, figure: str) -> Comparison | None:
    """Returns how this side compares with the other; None if a side has no figures."""
    our_rounds, their_rounds = _by_round(ours, figure), _by_round(theirs, figure)
    if not our_rounds or not their_rounds:
        return None
    ratios = [their_rounds[index] / value for index, value in our_rounds.items() if index in their_rounds]
    of_pairs = Spread(median(ratios), min(ratios), max(ratios), len(ratios)) if ratios else None
    return Comparison(median(their_rounds.values()) / median(our_rounds.values()), of_pairs)


def comparisons(results: Mapping[str, Series]) -> dict[str, dict[str, Any]]:
    """Returns for each row that both sides have what the JSON file has of it."""
    found = {row.name: _compared(results, row.name, against_name(row)) for row in ROWS}
    return {name: asdict(comparison) for name, comparison in found.items() if comparison is not None}


def render(results: Mapping[str, Series]) -> str:
    """Returns the table, what its figures mean, and remarks."""
    is_pair = any(against_name(row) in results for row in ROWS)
    legend = f"{_LEGEND}\n{_RATIO_LEGEND}" if is_pair else _LEGEND
    parts = [_pairs(results) if is_pair else _alone(results), legend, remarks(results)]
    return "\n\n".join(part for part in parts if part)


def _alone(results: Mapping[str, Series]) -> str:
    rows: list[tuple[str, ...]] = [(_TITLE, "seconds", "updates", "trained steps/s")]
    for row in ROWS:
        if row.name in results:
            series = results[row.name]
            cells = ((CPU_SECONDS, _SECONDS), (UPDATES, _UPDATES), (STEPS_PER_SECOND, ",.0f"))
            rows.append((row.title, *(cell(series.spread(figure), form) for figure, form in cells)))
    return aligned(rows)


def _pairs(results: Mapping[str, Series]) -> str:
    rows: list[tuple[str, ...]] = [
        (_TITLE, "this checkout", "the other", "updates of both", "speed, medians", "speed, pairs")
    ]
    for row in ROWS:
        ours, theirs = results.get(row.name), results.get(against_name(row))
        if ours is None or theirs is None:
            continue
        comparison = compare(ours, theirs, CPU_SECONDS)
        rows.append(
            (
                row.title,
                *(cell(side.spread(CPU_SECONDS), _SECONDS) for side in (ours, theirs)),
                " / ".join(cell(side.spread(UPDATES), _UPDATES) for side in (ours, theirs)),
                "" if comparison is None else f"{comparison.of_medians:{_RATIO}} x",
                "" if comparison is None else cell(comparison.of_pairs, _RATIO),
            )
        )
    return aligned(rows)


def _compared(results: Mapping[str, Series], ours: str, theirs: str) -> Comparison | None:
    return compare(results[ours], results[theirs], CPU_SECONDS) if ours in results and theirs in results else None


def _by_round(series: Series, figure: str) -> dict[int, float]:
    return {each.round_index: each.values[figure] for each in series.rounds if figure in each.values}
