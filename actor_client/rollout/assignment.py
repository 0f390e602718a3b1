"""The task of a behavior id: its part of an assignment, read once and acted on between two steps."""

from dataclasses import dataclass
from typing import Final

import structlog
from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2

from actor_client.logs import Notices

_log = structlog.get_logger(__name__)

_ACTED_ON: Final = frozenset({int(AssignmentRole.LEARN), int(AssignmentRole.IDLE)})


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a behavior id. The default is to learn with the newest policy.

    Attributes:
        assignment: Its number; 0 unless it evaluates, so that tasks compare by what they ask for.
        evaluates: Play whole episodes and send their records alone. An evaluation with another number is another one.
        idles: Take no step.
        deterministic: Act with the mode of the distribution.
        generation: Of the pinned version.
        version: The pinned version of an evaluation; 0 = the newest there is when it begins.
        episodes: To play and then wait; 0 = no limit.
    """

    assignment: int = 0
    evaluates: bool = False
    idles: bool = False
    deterministic: bool = False
    generation: int = 0
    version: int = 0
    episodes: int = 0

    def words(self) -> dict[str, object]:
        """Returns what is asked for, for a line of the log."""
        if self.idles:
            return {"does": "wait"}
        if not self.evaluates:
            return {"does": "learn", "deterministic": self.deterministic}
        return {
            "does": "evaluate",
            "version": self.version or "newest",
            "deterministic": self.deterministic,
            "episodes": self.episodes or "no limit",
        }


class TaskReader:
    """Reads the tasks of behavior ids from assignments; warns once of what is not supported, and learns instead."""

    def __init__(self) -> None:
        self._notices = Notices(interval_seconds=float("inf"))

    def of(self, assignment: policy_pb2.Assignment | None, behavior: str, team: int) -> Task:
        """Returns the task of a behavior id.

        Args:
            assignment: What the learner asks for; None before it was asked.
            behavior: The name, without a team.
            team: The team.
        """
        if assignment is None:
            return Task()
        for part in assignment.behaviors:
            if part.behavior == behavior and part.team == team:
                return self._read(assignment, part)
        return Task()

    def _read(self, assignment: policy_pb2.Assignment, part: policy_pb2.BehaviorAssignment) -> Task:
        if part.role not in _ACTED_ON:
            self._leave_out(f"role {part.role}", part.behavior)
            return Task()
        if part.role == int(AssignmentRole.IDLE):
            return Task(idles=True)
        if part.purpose == int(Purpose.EVALUATE):
            return Task(
                assignment=assignment.id,
                evaluates=True,
                deterministic=part.deterministic,
                generation=part.generation,
                version=part.version,
                episodes=assignment.episodes,
            )
        if part.purpose not in {Purpose.UNSPECIFIED, Purpose.TRAIN}:
            self._leave_out(f"purpose {part.purpose}", part.behavior)
        if part.version:
            self._leave_out("learning with a pinned version", part.behavior)
        return Task(deterministic=part.deterministic)

    def _leave_out(self, what: str, behavior: str) -> None:
        if self._notices.due(what) is not None:
            _log.warning("assignment_not_acted_on", what=what, behavior=behavior, instead="learning goes on")
