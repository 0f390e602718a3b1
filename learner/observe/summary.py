"""How far a run is and what came of it, for machines: ``progress.json`` while it lasts, ``summary.json`` at its end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from learner.common.files import open_regular
from learner.observe.jsonfile import write_json
from learner.observe.milestones import Milestones
from learner.observe.view import ActorNumbers, BehaviorView, LedgerNumbers, LockstepView, RunView

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


SUMMARY_FILE = "summary.json"


@dataclass(frozen=True, slots=True)
class BehaviorSummary:
    """What came of one behavior.

    Attributes:
        env_steps_taken: steps taken by all actors.
        env_steps_trained: steps in completed updates.
        wall_seconds: from the first step taken.
        active_seconds: those of them in which the run was not paused and an actor was connected.
        seconds_to_target: from the first step taken until the target was reached, None if it was not.
        env_steps_to_target: steps taken by all actors until then, None if it was not.
        env_steps_per_second: steps taken, those of ``lost{rollback}`` aside, by ``wall_seconds``.
        env_steps_per_active_second: steps taken, by ``active_seconds``.
        episodes: finished training episodes.
        mean_return_100: over the newest of them, None if there is none.
        target_return: what was to be reached, if anything.
        policy_version: the last one published.
        ledger: the learner's books, in steps.
        actor_books: what became of the steps that were taken and are not in the ledger.
        onnx_path: the model file, None if none was written.
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
    def of(
        cls, view: BehaviorView, milestones: Milestones, actor_books: ActorNumbers, onnx_path: Path | None = None
    ) -> BehaviorSummary:
        """Makes the summary from the last view of a behavior, its milestones and its actors' part of the books."""
        # The time of a rollback's steps ended with the process that had counted it: without them both fit each other.
        timed_steps = view.env_steps_taken - view.books["lost"].get("rollback", 0)
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
            actor_books=actor_books,
            onnx_path=None if onnx_path is None else str(onnx_path),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to.

    Attributes:
        run_id: the run.
        generation: how many times its learner was started.
        stop_reason: why it ended: ``target_return``, ``max_steps``, ``max_wall_seconds``, ``signal``, ...
        behaviors: by name, in the order of declaration; empty if no actor ever came.
        lockstep: how far a run in lock-step came; None for others.
    """

    run_id: str
    generation: int
    stop_reason: str
    behaviors: Mapping[str, BehaviorSummary]
    lockstep: LockstepView | None = None

    def as_dict(self) -> dict[str, object]:
        """Returns the content of ``summary.json``.

        The values of the first behavior, mostly the only one, stand at the top; with several, ``behaviors`` holds all.
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
        WriteFailed: the folder cannot be written to.
    """
    path = run_folder / SUMMARY_FILE
    write_json(path, summary.as_dict())
    return path
