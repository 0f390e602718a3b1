"""Writes progress and results for programs: ``progress.json`` during the run, ``summary.json`` at its end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from learner.shared.files import open_regular
from learner.shared.observe.behavior_state import ActorNumbers, BehaviorState, LedgerNumbers
from learner.shared.observe.jsonfile import write_json
from learner.shared.observe.milestones import Milestones
from learner.shared.observe.view import LockstepView, RunView

PROGRESS_FILE = "progress.json"
_MAX_BYTES = 2**20


def progress_document(view: RunView, best_returns: Mapping[str, float], time_seconds: float) -> dict[str, Any]:
    """Returns the content of ``progress.json``.

    Args:
        view: Current view of the run.
        best_returns: Best mean return of each behavior so far.
        time_seconds: Current time, in seconds since the epoch.
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
    """Writes the file, completely or not at all.

    Raises:
        WriteFailed: The file cannot be written.
    """
    write_json(run_folder / PROGRESS_FILE, document)


def read_small_json(path: Path) -> dict[str, Any]:
    """Returns the object in a small JSON file; an empty one if it is missing, damaged or foreign."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def best_returns(run_folder: Path) -> dict[str, float]:
    """Returns the best mean return of each behavior, as saved by the previous start."""
    behaviors = read_small_json(run_folder / PROGRESS_FILE).get("behaviors")
    if not isinstance(behaviors, dict):
        return {}
    found = {name: finite(part.get("best_return")) for name, part in behaviors.items() if isinstance(part, dict)}
    return {name: value for name, value in found.items() if value is not None}


def finite(value: object) -> float | None:
    """Returns a finite number from a file, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


SUMMARY_FILE = "summary.json"


@dataclass(frozen=True, slots=True)
class BehaviorSummary:
    """Results of one behavior.

    Attributes:
        env_steps_taken: Steps taken by all actors.
        env_steps_trained: Steps in completed updates.
        wall_seconds: Seconds since the first step taken.
        active_seconds: Part of `wall_seconds` in which the run was not paused and an actor was connected.
        seconds_to_target: Seconds from the first step taken until the target was reached; None if it was not.
        env_steps_to_target: Steps taken by all actors until the target was reached; None if it was not.
        env_steps_per_second: Steps taken, except those acked after a checkpoint and lost, per second of ``wall_seconds``.
        env_steps_per_active_second: Steps taken per second of ``active_seconds``.
        episodes: Finished training episodes.
        mean_return_100: Mean return of the newest of them; None if there are none.
        target_return: Target of the run; None if there is none.
        policy_version: Last published version.
        ledger: The learner's books, in steps.
        actor_books: Fate of the steps that were taken and are not in the ledger.
        onnx_path: The model file, None if none was written.
    """

    env_steps_taken: int
    env_steps_trained: int
    wall_seconds: float
    active_seconds: float
    seconds_to_target: float | None
    env_steps_to_target: int | None
    env_steps_per_second: float
    env_steps_per_active_second: float
    episodes: int
    mean_return_100: float | None
    target_return: float | None
    policy_version: int
    ledger: LedgerNumbers
    actor_books: ActorNumbers
    onnx_path: str | None = None

    @classmethod
    def of(cls, view: BehaviorState, milestones: Milestones, *, untimed_steps: int = 0) -> BehaviorSummary:
        """Creates the summary from a behavior's last view and its milestones.

        Args:
            view: The last view.
            milestones: The clocks.
            untimed_steps: Steps that were lost together with the time in which they were taken: those acked after a
                checkpoint.
        """
        timed_steps = view.env_steps_taken - untimed_steps
        return cls(
            env_steps_taken=view.env_steps_taken,
            env_steps_trained=view.env_steps_trained,
            wall_seconds=milestones.wall_seconds,
            active_seconds=milestones.active_seconds,
            seconds_to_target=milestones.seconds_to_target,
            env_steps_to_target=milestones.env_steps_to_target,
            env_steps_per_second=_rate(timed_steps, milestones.wall_seconds),
            env_steps_per_active_second=_rate(timed_steps, milestones.active_seconds),
            episodes=view.episodes,
            mean_return_100=view.mean_return_100,
            target_return=view.target_return,
            policy_version=view.version,
            ledger=view.books,
            actor_books=view.actor_books,
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of a run.

    Attributes:
        run_id: Name of the run.
        generation: Number of starts of the learner.
        stop_reason: Why it ended: ``target_return``, ``max_steps``, ``max_wall_seconds``, ``signal``, ...
        behaviors: Results by name, in the order of declaration; empty if no actor declared one.
        lockstep: Progress of a lock-step run; None for others.
        actors_opened: Actors that joined in this start; not part of the file.
    """

    run_id: str
    generation: int
    stop_reason: str
    behaviors: Mapping[str, BehaviorSummary]
    lockstep: LockstepView | None = None
    actors_opened: int = 0

    def as_dict(self) -> dict[str, object]:
        """Returns the content of ``summary.json``.

        The values of the first behavior are at the top level; with several behaviors, ``behaviors`` holds all.
        """
        content: dict[str, object] = {
            "run_id": self.run_id,
            "generation": self.generation,
            "stop_reason": self.stop_reason,
        }
        if self.lockstep is not None:
            content["lockstep"] = {**asdict(self.lockstep), "reproducible": self.lockstep.is_reproducible}
        if self.behaviors:
            name, first = next(iter(self.behaviors.items()))
            content |= {"behavior": name, **asdict(first)}
        if len(self.behaviors) > 1:
            content["behaviors"] = {name: asdict(summary) for name, summary in self.behaviors.items()}
        return content


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def write_summary(run_folder: Path, summary: Summary) -> Path:
    """Writes ``summary.json`` into the run folder in one step and returns its path.

    Raises:
        WriteFailed: The folder is not writable.
    """
    path = run_folder / SUMMARY_FILE
    write_json(path, summary.as_dict())
    return path
