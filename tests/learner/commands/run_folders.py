"""Run folders as learners leave them, without a learner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run_folder(
    results: Path,
    name: str,
    *,
    generation: int = 1,
    progress: dict[str, Any] | None = None,
    events: Sequence[dict[str, Any]] = (),
    summary: dict[str, Any] | None = None,
) -> Path:
    """Makes the folder of a run that no learner has, and returns it."""
    folder = results / name
    folder.mkdir(parents=True)
    (folder / "generation").write_text(f"{generation}\n")
    (folder / ".lock").write_text("1\n")
    if progress is not None:
        (folder / "progress.json").write_text(json.dumps(progress))
    if events:
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def progress_of(
    *,
    generation: int = 1,
    state: str = "training",
    steps: int = 500,
    mean: float | None = 3.0,
    best: float | None = 7.5,
) -> dict[str, Any]:
    """Returns a progress document of one behavior."""
    numbers = {"env_steps_trained": steps, "max_steps": 1000, "mean_return": mean, "best_return": best}
    return {"generation": generation, "state": state, "behaviors": {"Walker": numbers}}


def curve_rows(values: Sequence[float], key: str = "Environment/Cumulative Reward") -> str:
    """Returns a `stats.csv` with a value every 1,000 steps and 2 seconds."""
    header = "step,seconds,key,value,count,std\n"
    rows = (f"{1000 * place},{2 * place:.3f},{key},{value},5,0.5\n" for place, value in enumerate(values, start=1))
    return header + "".join(rows)
