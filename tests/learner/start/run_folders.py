"""Makes run folders without a learner."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from learner.shared.observe.csvfile import CsvWriter
from learner.shared.observe.curves import RETURN_KEY
from learner.shared.observe.stats import StatsReporter
from learner.shared.runfolder.names import CONFIGURATION
from learner.shared.settings.load import effective_document, load_run_options, to_yaml


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


def trained_run(
    results: Path,
    name: str,
    returns: Mapping[str, Sequence[float]],
    *settings: str,
    seed: int = 1,
    every_steps: int = 1000,
    trainer: str = "ppo",
) -> Path:
    """Makes the folder of a run with what a learner writes of its settings and statistics, and returns it.

    Args:
        results: Folder of all runs.
        name: Of the run.
        returns: Mean return of 30 episodes at each summary, by behavior.
        settings: As of ``--set``.
        seed: Of the run.
        every_steps: Steps between two summaries, and half that many seconds.
        trainer: Type of the trainer of all behaviors.
    """
    folder = run_folder(results, name)
    items = [f"behaviors.{behavior}.trainer_type={trainer}" for behavior in returns]
    flags = {"run-id": name, "seed": str(seed), "address": f"127.0.0.1:{50_000 + seed}"}
    loaded = load_run_options(None, cli=flags, set_items=[*items, *settings], environ={})
    (folder / CONFIGURATION).write_text(to_yaml(effective_document(loaded)))
    for behavior, values in returns.items():
        now = 0.0
        writer = CsvWriter(folder, clock=lambda: now)  # noqa: B023 - called within the turn of the loop
        reporter = StatsReporter(behavior, [writer])
        reporter.write_text("settings", "")
        for number, value in enumerate(values, start=1):
            now = number * every_steps / 2
            reporter.add_stats(RETURN_KEY, np.full(30, value))
            reporter.write_stats(number * every_steps)
        writer.close()
    return folder
