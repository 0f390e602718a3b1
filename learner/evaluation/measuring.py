"""What a run keeps of how good its policies are: evaluations, and the best checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from learner.checkpoints.store import CheckpointStore
from learner.curriculum.lessons import Lessons
from learner.evaluation.best import CHECKPOINT_SHARE, BestKeeper
from learner.evaluation.during_training import Evaluator, OrderDesk
from learner.ingest.sessions import SessionTable
from learner.link.evaluation import EvaluationResult, Played
from learner.observe.metrics import LearnerMetrics
from learner.observe.view import Verdict
from learner.publish.store import PolicyStore
from learner.settings.service import ServiceSettings
from learner.status.record import RunRecord
from learner.status.run_status import Picture
from learner.trainers.base import Trainer


class Measuring:
    """Evaluations and best checkpoints of one run; an `EvaluationSink`. In the trainer thread, but for `attach`.

    Args:
        service: how often, how long, by how many.
        checkpoints: writes the files.
        sessions: the actors.
        store: the policies.
        lessons: what the environments are set to.
        metrics: where results are shown.
        record: keeps them.
        picture: shows them to operators.
    """

    def __init__(
        self,
        service: ServiceSettings,
        checkpoints: CheckpointStore,
        sessions: SessionTable,
        store: PolicyStore,
        *,
        lessons: Lessons,
        metrics: LearnerMetrics,
        record: RunRecord,
        picture: Picture,
    ) -> None:
        self._record = record
        self._picture = picture
        self._best = BestKeeper(
            checkpoints,
            lessons,
            evaluates=service.evaluation.interval_steps is not None,
            metrics=metrics,
            on_best=picture.note_best,
            every_seconds=service.checkpoint_seconds / CHECKPOINT_SHARE,
            on_saved=record.note_saved,
            on_not_saved=record.note_not_saved,
        )
        self._evaluator = Evaluator(
            service.evaluation, sessions, store, self._best, metrics=metrics, on_result=self._note
        )

    def attach(self, desk: OrderDesk) -> None:
        """Names what brings actors their orders; from any thread."""
        self._evaluator.attach(desk)

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Takes a finished episode of an evaluation."""
        self._evaluator.add(behavior, team, assignment_id, played)

    def begin(self, trainer: Trainer) -> None:
        """Shows what a run that goes on has kept of a behavior."""
        self._best.begin(trainer)

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Looks whether there is something to measure or to keep."""
        self._evaluator.after_turn(trainers)
        self._best.after_turn(trainers)

    def finish(self, trainers: Mapping[str, Trainer]) -> None:
        """The run ends: what is best now is kept now."""
        self._best.after_turn(trainers, is_last=True)

    def verdict(self, found: Verdict) -> Verdict:
        """Returns a verdict as it is to be shown: while all actors evaluate, that is what holds the run up.

        May be called from any thread.
        """
        obstacle = self._evaluator.obstacle
        return replace(found, name="none", text=obstacle) if obstacle else found

    def _note(self, result: EvaluationResult) -> None:
        self._record.note_evaluation(result)
        self._picture.note_evaluation(result.behavior, result.returns.mean)
