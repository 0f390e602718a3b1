"""What happens between two turns of the trainers: lessons, pictures, records, checkpoints, and whether the run is over."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from learner.common.exits import UserError
from learner.curriculum.lessons import Lessons
from learner.evaluation.during_training import EvaluationManager
from learner.link.commands import Assign, Send
from learner.run.checkpointing import CheckpointKeeper
from learner.run.lockstep.barrier import Lockstep
from learner.run.setup import Configuration
from learner.run.stopping import Stopping
from learner.status.record import RunRecord
from learner.status.run_status import RunStatus, TrainerStats
from learner.trainers.base import Trainer
from learner.trainers.loop import TrainerLoop

log = structlog.get_logger(__name__)


class CurriculumController:
    """Looks after the lessons between two turns of the trainers.

    Args:
        lessons: of the run.
        keeper: saves them.
        send: hands the service a command: the assignment of a new lesson.
        lockstep: begins lessons with its rounds, and saves them with its checkpoints; None for runs that are not in it.
    """

    def __init__(
        self, lessons: Lessons, keeper: CheckpointKeeper, send: Send, lockstep: Lockstep | None = None
    ) -> None:
        self._lessons = lessons
        self._keeper = keeper
        self._lockstep = lockstep
        self._send = send

    def after_turn(self, trainers: Mapping[str, Trainer]) -> None:
        """Begins what is to begin; in the trainer thread.

        Saved first: a learner that is killed now goes on with a revision that no actor has seen under other lessons.
        """
        changes = self._lessons.take_changes()
        if not changes:
            return
        for change in changes:
            log.info(
                "lesson_begun",
                parameter=change.parameter,
                lesson=change.lesson,
                number=change.number,
                of=change.lessons,
                completed=change.completed,
                reset=change.require_reset,
            )
        resets = any(change.require_reset for change in changes)
        if self._lockstep is not None:
            self._lockstep.note_lessons(reset=resets)
            return
        self._keeper.save_lessons(trainers)
        assignment = self._lessons.assignment(reset=resets)
        if assignment is not None:
            self._send(Assign(assignment))


class BetweenTurns:
    """All of it runs in the trainer thread.

    Args:
        curriculum: begins lessons.
        run_status: shows how the trainers are.
        record: keeps it.
        keeper: saves the run.
        stopping: told when the target is reached.
        evaluations: evaluates, and keeps the best.
        configuration: the settings, kept once the trainers took over a saved state.
        lockstep: leads the rounds; None for runs that are not in lock-step.
    """

    def __init__(
        self,
        curriculum: CurriculumController,
        run_status: RunStatus,
        record: RunRecord,
        keeper: CheckpointKeeper,
        stopping: Stopping,
        *,
        evaluations: EvaluationManager,
        configuration: Configuration,
        lockstep: Lockstep | None = None,
    ) -> None:
        self._curriculum = curriculum
        self._run_status = run_status
        self._record = record
        self._keeper = keeper
        self._stopping = stopping
        self._evaluations = evaluations
        self._configuration = configuration
        self._lockstep = lockstep

    def before(self) -> None:
        """Before trainers take a turn."""
        if self._lockstep is not None:
            self._lockstep.before_turn()

    def after(self, loop: TrainerLoop) -> None:
        """After they took one.

        Raises:
            UserError: a round of lock-step does not fit the memory that there is for it.
        """
        trainers = loop.trainers
        try:
            self._configuration.keep()
        except UserError as error:  # a run that goes on does not end for it
            log.error("configuration_not_kept", error=error.message)
        self._curriculum.after_turn(trainers)
        news = {name: trainer_stats(each) for name, each in trainers.items()}
        at_target = [
            self._run_status.note_trainer(each.context.behavior, news[name]) for name, each in trainers.items()
        ]
        for name, each in trainers.items():
            self._record.note_turn(name, news[name], each.reward_buffer)
        self._evaluations.after_turn(trainers)
        if any(at_target):
            # Now, and not when the event loop hears of it: the mean return shall be that of this moment.
            loop.stop()
            self._stopping.ask_anywhere("target_return", final=True)
            if self._keeper.updates(trainers) == 0:
                log.warning("target_return is already reached; raise rollcast.target_return to go on")
        if self._lockstep is not None:
            self._lockstep.after_turn(trainers, save=self._keeper.save_round, is_ending=any(at_target))
        self._keeper.save_if_due(trainers)


def trainer_stats(trainer: Trainer) -> TrainerStats:
    """Returns what a trainer is like now; in its thread."""
    return TrainerStats(
        version=trainer.version,
        env_steps_trained=trainer.steps_trained,
        episodes=trainer.episodes,
        mean_return=trainer.mean_return(),
        mean_lag=trainer.mean_lag,
        log_prob_error_max=trainer.log_prob_error_max,
        is_full=len(trainer.reward_buffer) == trainer.reward_buffer.maxlen,
    )
