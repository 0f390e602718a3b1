"""What happens between two turns of the trainers: lessons, pictures, records, checkpoints, and whether the run is over."""

from __future__ import annotations

import structlog

from learner.common.exits import UserError
from learner.evaluation.measuring import Measuring
from learner.run.checkpointing import CheckpointKeeper
from learner.run.lockstep.barrier import Lockstep
from learner.run.setup import Configuration
from learner.run.stopping import Stopping
from learner.run.teaching import Teacher
from learner.run.trainer_factory import news_of
from learner.status.record import RunRecord
from learner.status.run_status import Picture
from learner.trainers.loop import TrainerLoop

log = structlog.get_logger(__name__)


class BetweenTurns:
    """All of it runs in the trainer thread.

    Args:
        teacher: begins lessons.
        picture: shows how the trainers are.
        record: keeps it.
        keeper: saves the run.
        stopping: told when the target is reached.
        measuring: evaluates, and keeps the best.
        configuration: the settings, kept once the trainers took over a saved state.
        lockstep: leads the rounds; None for runs that are not in lock-step.
    """

    def __init__(
        self,
        teacher: Teacher,
        picture: Picture,
        record: RunRecord,
        keeper: CheckpointKeeper,
        stopping: Stopping,
        *,
        measuring: Measuring,
        configuration: Configuration,
        lockstep: Lockstep | None = None,
    ) -> None:
        self._teacher = teacher
        self._picture = picture
        self._record = record
        self._keeper = keeper
        self._stopping = stopping
        self._measuring = measuring
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
        self._teacher.after_turn(trainers)
        news = {name: news_of(each) for name, each in trainers.items()}
        at_target = [self._picture.note_trainer(each.context.behavior, news[name]) for name, each in trainers.items()]
        for name, each in trainers.items():
            self._record.note_turn(name, news[name], each.reward_buffer)
        self._measuring.after_turn(trainers)
        if any(at_target):
            # Now, and not when the event loop hears of it: the mean return shall be that of this moment.
            loop.stop()
            self._stopping.ask_anywhere("target_return", final=True)
            if self._keeper.updates(trainers) == 0:
                log.warning("target_return is already reached; raise rollcast.target_return to go on")
        if self._lockstep is not None:
            self._lockstep.after_turn(trainers, save=self._keeper.save_round, is_ending=any(at_target))
        self._keeper.save_if_due(trainers)
