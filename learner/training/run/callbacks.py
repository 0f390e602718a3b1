"""Passes events of a run to the user's callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from learner.training.callbacks.base import EpisodesFinished, Event, PolicyUpdated, RunEnded
from learner.training.callbacks.runner import CallbackRunner, load_callbacks
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import Ending, RunPart, Trainers


@dataclass(frozen=True, slots=True)
class _Seen:
    version: int = 0
    episodes: int = 0


class Callbacks(RunPart):
    """Runs each callback in a separate thread, so that it cannot disturb the trainers.

    Args:
        names: Names of the callbacks in the run file.
        folder: Folder of the run.
        resumed: Whether the run continues from a checkpoint; earlier events are not reported.

    Raises:
        UserError: A callback cannot be created.
    """

    def __init__(self, names: Sequence[str], folder: Path, *, resumed: bool) -> None:
        made = load_callbacks(names)
        self._runners = tuple(CallbackRunner(name, callback) for name, callback in made)
        self._folder = folder
        self._resumed = resumed
        self._seen: dict[str, _Seen] = {}

    def tell(self, event: Event) -> None:
        """Passes an event to all callbacks; callable from any thread."""
        for runner in self._runners:
            runner.tell(event)

    def after_turn(self, trainers: Trainers) -> None:
        """Reports finished episodes and new versions."""
        if self._runners:
            for name, trainer in trainers.items():
                self._look(name, trainer)

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Reports the end of the run and waits a while until each callback has received it."""
        del trainers
        for runner in self._runners:
            runner.end(RunEnded(ending.reason, ending.error_text, self._folder))
        return True

    def _look(self, behavior: str, trainer: Trainer) -> None:
        now = _Seen(trainer.version, trainer.episodes)
        before = self._seen.get(behavior, None if self._resumed else _Seen())
        self._seen[behavior] = now
        if before is None or before == now:
            return
        finished = now.episodes - before.episodes
        if finished > 0:
            self.tell(EpisodesFinished(behavior, now.episodes, finished, tuple(trainer.reward_buffer)[-finished:]))
        if now.version > before.version:
            stats = trainer.stats()
            self.tell(
                PolicyUpdated(
                    behavior=behavior,
                    version=stats.version,
                    env_steps_trained=stats.env_steps_trained,
                    episodes=stats.episodes,
                    mean_return=stats.mean_return,
                    numbers=stats.numbers,
                )
            )
