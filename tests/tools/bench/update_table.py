"""Formats the rates of updates with and without a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.tools.bench.cpu_table import compare
from tests.tools.bench.measurement import Series
from tests.tools.bench.table import aligned, cell, remarks
from tests.tools.bench.update_runs import LOAD_BYTES, QUIET, SERVICE_SHARE, TRAINERS_SHARE, UPDATES

_COLUMNS: Final = (
    ("updates/s", UPDATES, ".2f", 1.0),
    ("load, MB/s", LOAD_BYTES, ",.0f", 1e-6),
    ("cores of the service", SERVICE_SHARE, ".2f", 1.0),
    ("of the trainers", TRAINERS_SHARE, ".2f", 1.0),
)
_LEGEND: Final = (
    "of quiet: updates a second over those without a load, median and range of the rounds. The service and what sends share one "
    "core, and the trainers have another: a load that a third core would send may not be reached"
)


def render(results: Mapping[str, Series]) -> str:
    """Returns the table, what its figures mean, and remarks."""
    rows: list[tuple[str, ...]] = [("", *(title for title, *_ in _COLUMNS), "of quiet")]
    quiet = results.get(QUIET)
    for series in results.values():
        compared = None if quiet is None or series is quiet else compare(quiet, series, UPDATES)
        rows.append(
            (
                series.title,
                *(cell(series.spread(figure), form, factor) for _, figure, form, factor in _COLUMNS),
                cell(None if compared is None else compared.of_pairs, ".3f"),
            )
        )
    return "\n\n".join(part for part in (aligned(rows), _LEGEND, remarks(results)) if part)
