"""Formats the measurements of many sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.tools.bench import session_runs
from tests.tools.bench.measurement import Series
from tests.tools.bench.table import NOTHING, aligned, cell, remarks

_COLUMNS: Final = (
    ("lost", session_runs.LOST, ",.0f"),
    ("renew p99 s", session_runs.RENEW_P99, ".3f"),
    ("ack median s", session_runs.ACK_MEDIAN, ".4f"),
    ("ack p99 s", session_runs.ACK_P99, ".4f"),
    ("cores", session_runs.CPU_SHARE, ".2f"),
    ("of its loop", session_runs.LOOP_SHARE, ".2f"),
    ("chunks/s", session_runs.CHUNKS, ",.0f"),
    ("versions", session_runs.VERSIONS, ",.0f"),
    ("back after s", session_runs.BACK_SECONDS, ".1f"),
    ("listens after s", session_runs.LISTEN_SECONDS, ".1f"),
    ("generator's cores", session_runs.GENERATOR_SHARE, ".2f"),
    ("its lag p99 s", session_runs.GENERATOR_LAG, ".4f"),
)
_LEGEND: Final = (
    "cores: CPU time of the learner's process over wall time. Renewals and acks are measured in the generator, so its own lag "
    "is in them: where it is not much smaller than they are, the machine was too busy to measure"
)


def render(results: Mapping[str, Series]) -> str:
    """Returns the table, what its figures mean, and remarks."""
    rows: list[tuple[str, ...]] = [("", *(title for title, _, _ in _COLUMNS))]
    for series in results.values():
        if series.rounds:
            cells = (series.spread(figure) for _, figure, _ in _COLUMNS)
            forms = (form for _, _, form in _COLUMNS)
            shown = (
                NOTHING if spread is None else cell(spread, form) for spread, form in zip(cells, forms, strict=True)
            )
            rows.append((series.title, *shown))
    return "\n\n".join(part for part in (aligned(rows), _LEGEND, remarks(results)) if part)
