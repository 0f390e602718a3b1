"""Begins lessons between two turns of the trainers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from learner.link.to_front import Assign, Send
from learner.training.curriculum.lessons import LessonChange, Lessons
from learner.training.lockstep.barrier import Lockstep
from learner.training.trainers.parts import RunPart, Trainers

log = structlog.get_logger(__name__)


class CurriculumController(RunPart):
    """Begins due lessons and saves them.

    Args:
        lessons: Lessons of the run.
        save: Writes the current lessons.
        send: Sends the service the assignment of a new lesson.
        lockstep: Begins lessons with its rounds and saves them with its checkpoints; None for runs without lock-step.
        on_begun: Called with each lesson that begins.
    """

    name = "lessons"

    def __init__(
        self,
        lessons: Lessons,
        save: Callable[[Trainers], object],
        send: Send,
        lockstep: Lockstep | None = None,
        *,
        on_begun: Callable[[LessonChange], object],
    ) -> None:
        self._lessons = lessons
        self._save = save
        self._lockstep = lockstep
        self._send = send
        self._on_begun = on_begun

    def after_turn(self, trainers: Trainers) -> None:
        """Begins due lessons.

        Lessons are saved first: a learner killed now continues with a revision that no actor has seen under other
        lessons.
        """
        changes = self._lessons.take_changes()
        if not changes:
            return
        for change in changes:
            log.info(
                "lesson_begun",
                parameter=change.parameter,
                lesson=change.lesson,
                number=change.number + 1,
                of=change.lessons,
                completed=change.completed,
                reset=change.require_reset,
            )
            self._on_begun(change)
        resets = any(change.require_reset for change in changes)
        if self._lockstep is not None:
            self._lockstep.note_lessons(reset=resets)
            return
        self._save(trainers)
        assignment = self._lessons.assignment(reset=resets)
        if assignment is not None:
            self._send(Assign(assignment))

    def state_dict(self) -> dict[str, Any]:
        """Returns the current lessons, and the episodes that decide on the next ones."""
        return self._lessons.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        self._lessons.load_state_dict(state)
