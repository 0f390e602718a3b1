"""How far a run is, in a small file: `progress.json`, for whoever lists runs without asking their learners."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learner.common.files import open_regular
from learner.observe.jsonfile import write_json
from learner.observe.view import RunView

PROGRESS_FILE = "progress.json"
_MAX_BYTES = 2**20


def progress_document(view: RunView, best_returns: Mapping[str, float], time_seconds: float) -> dict[str, Any]:
    """Returns the content of ``progress.json``.

    Args:
        view: the run now.
        best_returns: the best mean return of each behavior so far.
        time_seconds: since the epoch.
    """
    return {
        "run_id": view.run_id,
        "generation": view.generation,
        "state": view.state.value,
        "time_seconds": time_seconds,
        "uptime_seconds": view.uptime_seconds,
        "actors": view.actors,
        "behaviors": {
            behavior.name: {
                "env_steps_taken": behavior.env_steps_taken,
                "env_steps_trained": behavior.env_steps_trained,
                "max_steps": behavior.max_steps,
                "episodes": behavior.episodes,
                "mean_return": behavior.mean_return_100,
                "best_return": best_returns.get(behavior.name),
                "target_return": behavior.target_return,
            }
            for behavior in view.behaviors
        },
    }


def write_progress(run_folder: Path, document: Mapping[str, Any]) -> None:
    """Writes the file, whole or not at all.

    Raises:
        WriteFailed: it cannot be written.
    """
    write_json(run_folder / PROGRESS_FILE, document)


def read_small_json(path: Path) -> dict[str, Any]:
    """Returns the map that a small JSON file holds; an empty one if it is missing, damaged, or not one of ours."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def best_returns(run_folder: Path) -> dict[str, float]:
    """Returns the best mean return of each behavior, as the start before left them."""
    behaviors = read_small_json(run_folder / PROGRESS_FILE).get("behaviors")
    if not isinstance(behaviors, dict):
        return {}
    found = {name: finite(part.get("best_return")) for name, part in behaviors.items() if isinstance(part, dict)}
    return {name: value for name, value in found.items() if value is not None}


def finite(value: object) -> float | None:
    """Returns a number from a file, or None if it is none that makes sense."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
