"""Writes all figures as a JSON document."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.tools.bench.cpu_table import comparisons
from tests.tools.bench.measurement import Series
from tests.tools.bench.table import limit_rates, ratios

FORMAT = 1


def machine() -> dict[str, Any]:
    """Returns a description of the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def document(
    results: Mapping[str, Series], machine_facts: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the content of `bench.json`."""
    return {
        "format": FORMAT,
        "machine": dict(machine_facts),
        "options": dict(options),
        "contestants": {name: _series(series) for name, series in results.items()},
        "limits_steps_per_second": limit_rates(results),
        "rollcast_against": ratios(results),
        "learner_cpu_against": comparisons(results),
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a document; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _series(series: Series) -> dict[str, Any]:
    figures = dict.fromkeys(name for measured in series.rounds for name in measured.values)
    spreads = {name: spread for name in figures if (spread := series.spread(name)) is not None}
    return {
        "title": series.title,
        "unavailable": series.unavailable,
        "failures": series.failures,
        "figures": {name: asdict(spread) for name, spread in spreads.items()},
        "rounds": [
            {"round": each.round_index + 1, **each.values, **({"note": each.note} if each.note else {})}
            for each in series.rounds
        ],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
