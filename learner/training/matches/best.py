"""Keeps the best policy so far next to the newest checkpoints, chosen by evaluations or by training returns."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import structlog

from learner.shared.runfolder.documents import CheckpointFailed
from learner.shared.runfolder.store import CheckpointStore, Export, encode_behavior
from learner.training.curriculum.lessons import Lessons
from learner.training.export.card import Origin
from learner.training.trainers.base import Trainer

log = structlog.get_logger(__name__)

EVALUATION: Final = "evaluation"
TRAINING: Final = "training"
CHECKPOINT_SHARE: Final = 10
"""Rising training returns set a new best with each update; a best checkpoint is therefore written at most ten times as
often as a recovery checkpoint."""
REST: Final = 10.0
"""Times the duration of writing a best checkpoint, after which training returns may cause the next: an export of a large network on a
slow machine takes seconds of the trainers' time."""


@dataclass(frozen=True, slots=True)
class MeasuredPolicy:
    """The state of a policy when its evaluation begins; training continues meanwhile.

    Attributes:
        behavior: Name of the behavior.
        step: Steps of the trainer.
        data: Content of the checkpoint.
        export: Writes the model.
    """

    behavior: str
    step: int
    data: bytes
    export: Export

    @classmethod
    def of(cls, trainer: Trainer) -> Self:
        """Returns the current state of a trainer.

        Raises:
            TypeError: The state cannot be saved; a fault in the trainer.
        """
        name, step = trainer.brain_name, trainer.get_step
        policy = copy.deepcopy(trainer.get_policy(name))
        origin = Origin(trainer.context.run_id, step)

        def export(path: Path) -> None:
            from learner.training.export.unity import export_unity  # noqa: PLC0415 - onnx takes half a second to import

            export_unity(policy, path, origin=origin)

        return cls(name, step, encode_behavior(name, step, trainer.state_dict()), export)


class BestKeeper:
    """Keeps the best checkpoint of each behavior; used in the trainers' thread.

    In a run with evaluations, they decide; otherwise the mean return of the newest training episodes does, once there
    are enough episodes. Either counts without the episodes of the source whose omission lowers it most. A new lesson is another task: its first measurement replaces the best result of the lesson
    before.

    Args:
        store: Writes the files.
        lessons: Lessons that set the environment parameters.
        evaluates: Whether the run evaluates by itself.
        on_best: Called with the best result: behavior, return, step, number of principals that measured it (0 if actors are not
            identified).
        every_seconds: Least time between two checkpoints that training returns cause.
        on_saved: Called for each checkpoint: behavior, step, file.
        on_not_saved: Called with the reason if one cannot be written.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        store: CheckpointStore,
        lessons: Lessons,
        *,
        evaluates: bool,
        on_best: Callable[[str, float, int, int], object],
        every_seconds: float,
        on_saved: Callable[[str, int, Path], object],
        on_not_saved: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._lessons = lessons
        self._evaluates = evaluates
        self._on_best = on_best
        self._every_seconds = every_seconds
        self._on_saved = on_saved
        self._on_not_saved = on_not_saved
        self._clock = clock
        self._due_at: dict[str, float] = {}

    def begin(self, trainer: Trainer) -> None:
        """Shows the best result that a resumed run has kept."""
        best = self._store.status.best(trainer.brain_name)
        if best is not None and best.entry.reward is not None:
            self._on_best(trainer.brain_name, best.entry.reward, best.entry.steps, best.principals)

    def note_evaluation(self, candidate: MeasuredPolicy, mean_return: float, principals: Collection[str] = ()) -> bool:
        """Keeps an evaluated policy if it is the best so far; returns whether it is.

        In a run that does not evaluate by itself, a requested evaluation decides nothing.

        Args:
            candidate: The policy.
            mean_return: Its result.
            principals: Principals that measured it; empty if actors are not identified.
        """
        is_best = self._evaluates and self._is_best(candidate.behavior, mean_return, EVALUATION, principals)
        return is_best and self._keep(candidate, mean_return, EVALUATION, principals)

    def after_turn(self, trainers: Mapping[str, Trainer], *, is_last: bool = False) -> None:
        """Checks the training returns.

        Args:
            trainers: Trainers of the run.
            is_last: Whether the run ends, so that this is the last chance.
        """
        if self._evaluates:
            return
        for name, trainer in trainers.items():
            returns = trainer.reward_buffer
            mean = trainer.mean_return()
            said_by = {source.principal for source in trainer.context.roster.sources(name)} - {""}
            if mean is None or len(returns) != returns.maxlen or not self._is_best(name, mean, TRAINING, said_by):
                continue
            began = self._clock()
            if is_last or began >= self._due_at.get(name, began):
                least = trainer.least_mean_return()
                if least is not None and self._is_best(name, least, TRAINING, said_by):
                    self._keep(MeasuredPolicy.of(trainer), least, TRAINING, said_by)
                self._due_at[name] = began + max(self._every_seconds, REST * (self._clock() - began))

    def _is_best(self, behavior: str, reward: float, measure: str, principals: Collection[str]) -> bool:
        if not math.isfinite(reward):
            return False
        best = self._store.status.best(behavior)
        return best is None or best.is_beaten_by(reward, measure, self._lessons.since_revision, len(principals))

    def _keep(self, candidate: MeasuredPolicy, reward: float, measure: str, principals: Collection[str]) -> bool:
        try:
            path = self._store.save_best(
                candidate.behavior,
                candidate.data,
                step=candidate.step,
                reward=reward,
                measure=measure,
                revision=self._lessons.since_revision,
                principals=len(principals),
                export=candidate.export,
            )
        except CheckpointFailed as error:
            self._on_not_saved(str(error))
            return False
        self._on_best(candidate.behavior, reward, candidate.step, len(principals))
        self._on_saved(candidate.behavior, candidate.step, path)
        log.debug("best_checkpoint", behavior=candidate.behavior, step=candidate.step, reward=reward, measure=measure)
        return True
