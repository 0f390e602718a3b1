"""The best policy so far: kept beside the newest checkpoints, chosen by evaluations or by training returns."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import structlog

from learner.checkpoints.documents import CheckpointFailed
from learner.checkpoints.store import CheckpointStore, Export, encode_behavior
from learner.curriculum.lessons import Lessons
from learner.observe.metrics.learner import LearnerMetrics
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)

EVALUATION: Final = "evaluation"
TRAINING: Final = "training"
CHECKPOINT_SHARE: Final = 10
"""While training returns rise they do with each update; so a best checkpoint is written at most ten times as often as
a recovery checkpoint."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy as it was when its evaluation began: training has gone on when the result is there.

    Attributes:
        behavior: its name.
        step: trainer steps.
        data: the checkpoint.
        export: writes the model.
    """

    behavior: str
    step: int
    data: bytes
    export: Export

    @classmethod
    def of(cls, trainer: Trainer) -> Self:
        """Returns the present state of a trainer.

        Raises:
            TypeError: it cannot be saved; a fault in the trainer.
        """
        name, step = trainer.brain_name, trainer.get_step
        policy = copy.deepcopy(trainer.get_policy(name))

        def export(path: Path) -> None:
            from learner.publish.unity import export_unity  # noqa: PLC0415 - onnx takes half a second to import

            export_unity(policy, path)

        return cls(name, step, encode_behavior(name, step, trainer.state_dict()), export)


class BestKeeper:
    """Keeps the best checkpoint of each behavior; in the trainer thread.

    Where a run evaluates, evaluations decide; else the mean return of the newest training episodes, as soon as there
    are as many as it is meant to be over. A new lesson makes another task: its first measurement takes the place of
    what was best under the one before.

    Args:
        store: writes the files.
        lessons: what the environments are set to.
        evaluates: whether the run evaluates.
        metrics: where it is shown.
        on_best: told what is best, by behavior, return and step.
        every_seconds: least time between two checkpoints that training returns cause.
        on_saved: told of each: behavior, step, file.
        on_not_saved: told why one is not.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: CheckpointStore,
        lessons: Lessons,
        *,
        evaluates: bool,
        metrics: LearnerMetrics,
        on_best: Callable[[str, float, int], object],
        every_seconds: float,
        on_saved: Callable[[str, int, Path], object],
        on_not_saved: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._lessons = lessons
        self._evaluates = evaluates
        self._metrics = metrics
        self._on_best = on_best
        self._every_seconds = every_seconds
        self._on_saved = on_saved
        self._on_not_saved = on_not_saved
        self._clock = clock
        self._looked_at: dict[str, float] = {}

    def begin(self, trainer: Trainer) -> None:
        """Shows what a run that goes on has kept."""
        best = self._store.status.best(trainer.brain_name)
        if best is not None and best.entry.reward is not None:
            self._show(trainer.brain_name, best.entry.reward, best.entry.steps)

    def note_evaluation(self, candidate: Candidate, mean_return: float) -> bool:
        """Keeps an evaluated policy if it is the best so far; returns whether it is."""
        return self._is_best(candidate.behavior, mean_return, EVALUATION) and self._keep(
            candidate, mean_return, EVALUATION
        )

    def after_turn(self, trainers: Mapping[str, Trainer], *, is_last: bool = False) -> None:
        """Looks at the training returns.

        Args:
            trainers: of the run.
            is_last: the run ends, so it is now or never.
        """
        if self._evaluates:
            return
        for name, trainer in trainers.items():
            returns = trainer.reward_buffer
            mean = trainer.mean_return()
            if mean is None or len(returns) != returns.maxlen or not self._is_best(name, mean, TRAINING):
                continue
            now = self._clock()
            if is_last or now - self._looked_at.get(name, -self._every_seconds) >= self._every_seconds:
                self._looked_at[name] = now
                self._keep(Candidate.of(trainer), mean, TRAINING)

    def _is_best(self, behavior: str, reward: float, measure: str) -> bool:
        best = self._store.status.best(behavior)
        return best is None or best.is_beaten_by(reward, measure, self._lessons.since_revision)

    def _show(self, behavior: str, reward: float, step: int) -> None:
        self._metrics.behavior(behavior).note_best(reward, step)
        self._on_best(behavior, reward, step)

    def _keep(self, candidate: Candidate, reward: float, measure: str) -> bool:
        try:
            path = self._store.save_best(
                candidate.behavior,
                candidate.data,
                step=candidate.step,
                reward=reward,
                measure=measure,
                revision=self._lessons.since_revision,
                export=candidate.export,
            )
        except CheckpointFailed as error:
            self._on_not_saved(str(error))
            return False
        self._show(candidate.behavior, reward, candidate.step)
        self._on_saved(candidate.behavior, candidate.step, path)
        log.debug("best_checkpoint", behavior=candidate.behavior, step=candidate.step, reward=reward, measure=measure)
        return True
