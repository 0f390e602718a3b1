"""What happens when a lesson begins: it is said, saved, and sent to the actors, in this order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog
from rollcast.v1 import policy_pb2

from learner.curriculum.lessons import Lessons
from learner.run.checkpointing import CheckpointKeeper
from learner.run.lockstep.barrier import Lockstep
from learner.settings import RunOptions
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)


class Teacher:
    """Looks after the lessons between two turns of the trainers.

    Args:
        lessons: of the run.
        keeper: saves them.
        lockstep: begins lessons with its rounds, and saves them with its checkpoints; None for runs that are not in it.
    """

    def __init__(self, lessons: Lessons, keeper: CheckpointKeeper, lockstep: Lockstep | None = None) -> None:
        self._lessons = lessons
        self._keeper = keeper
        self._lockstep = lockstep
        self._assign: Callable[[policy_pb2.Assignment], object] | None = None

    def attach(self, assign: Callable[[policy_pb2.Assignment], object]) -> None:
        """Names what brings actors an assignment; from any thread."""
        self._assign = assign

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
        if self._assign is not None and assignment is not None:
            self._assign(assignment)


def make_lessons(options: RunOptions, seed: int) -> Lessons:
    """Returns the lessons of a run file; those that nothing can end were told of with its other warnings."""
    return Lessons(options.environment_parameters, seed=seed)
