"""Formats the measurements with and without TLS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.tools.bench.cpu_table import compare
from tests.tools.bench.learner_cpu import CPU_SECONDS
from tests.tools.bench.measurement import STEPS_PER_SECOND, Series
from tests.tools.bench.table import aligned, cell, remarks
from tests.tools.bench.tls_runs import BYTES_PER_SECOND, CPU_SECONDS_PER_GB, INGEST, TLS, TRAINING

_ROWS: Final = (
    ("cartpole-fast, trained steps/s", TRAINING, STEPS_PER_SECOND, ",.0f", 1.0),
    ("cartpole-fast, learner CPU s per 100,000 steps", TRAINING, CPU_SECONDS, ".2f", 1.0),
    ("84x84 pixels to the service, MB/s", INGEST, BYTES_PER_SECOND, ",.0f", 1e-6),
    ("84x84 pixels to the service, CPU s per GB", INGEST, CPU_SECONDS_PER_GB, ".2f", 1.0),
)
_LEGEND: Final = "TLS/plain: median and range over the rounds that both have; with TLS, calls carry a token too"


def render(results: Mapping[str, Series]) -> str:
    """Returns the table, what its figures mean, and remarks."""
    rows: list[tuple[str, ...]] = [("", "plain", "TLS", "TLS/plain, pairs")]
    for title, name, figure, form, factor in _ROWS:
        plain, tls = results.get(name), results.get(f"{name}{TLS}")
        if plain is None or tls is None:
            continue
        compared = compare(plain, tls, figure)
        rows.append(
            (
                title,
                *(cell(side.spread(figure), form, factor) for side in (plain, tls)),
                cell(None if compared is None else compared.of_pairs, ".3f"),
            )
        )
    return "\n\n".join(part for part in (aligned(rows), _LEGEND, remarks(results)) if part)
