"""The task of a behavior id: its part of an assignment, applied between two steps."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog
from rollcast.enums import AssignmentRole, Purpose
from rollcast.throttle import Throttle
from rollcast.v1 import policy_pb2

_log = structlog.get_logger(__name__)

_ACTED_ON: Final = frozenset({int(role) for role in AssignmentRole if role is not AssignmentRole.UNSPECIFIED})


class Pinned(NamedTuple):
    """The key of a pinned policy.

    Attributes:
        generation: Generation of the learner that published it; 0 = the present one, if there is no digest.
        version: Its version.
        sha256: Digest of its bytes; empty = any.
    """

    generation: int
    version: int
    sha256: bytes = b""


@dataclass(frozen=True, slots=True)
class Seat:
    """The part of a behavior id in a match.

    Attributes:
        match: Number of the match.
        team: Team of the behavior id.
        is_opponent: Acts as an opponent, which is not trained.
        policy: The policy of an opponent; None = the newest.
        opponent: Behavior id of an agent on the other side; empty if there is none.
        opponent_policy: The policy with which it acts; None = the newest.
        episodes: Episodes that are reported, of those that begin after a reset; 0 = all, without a reset.
        random_steps: Actions at the start of each episode that are drawn uniformly.
        deterministic: An opponent acts with the mode of its policy's distribution.
    """

    match: int
    team: int
    is_opponent: bool = False
    policy: Pinned | None = None
    opponent: str = ""
    opponent_policy: Pinned | None = None
    episodes: int = 0
    random_steps: int = 0
    deterministic: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a behavior id. The default is to learn with the newest policy.

    Attributes:
        assignment: The assignment's number in an evaluation, otherwise 0, so that equal training tasks compare equal.
        evaluates: Play whole episodes and send only their records. Another `assignment` means another evaluation.
        idles: Take no steps.
        deterministic: Act with the mode of the distribution.
        generation: Generation of the pinned version.
        version: The pinned version of an evaluation; 0 = the newest one when it begins.
        episodes: Episodes to play before waiting; 0 = no limit.
        seat: The part in a match; None outside of matches.
        told_by: Number of the assignment that gave the task; not compared.
    """

    assignment: int = 0
    evaluates: bool = False
    idles: bool = False
    deterministic: bool = False
    generation: int = 0
    version: int = 0
    episodes: int = 0
    seat: Seat | None = None
    told_by: int = field(default=0, compare=False)

    @property
    def role(self) -> AssignmentRole | None:
        """LEARN or OPPONENT in a match; otherwise None."""
        if self.seat is None:
            return None
        return AssignmentRole.OPPONENT if self.seat.is_opponent else AssignmentRole.LEARN

    def words(self) -> dict[str, object]:
        """Returns the task as fields of a log line."""
        if self.idles:
            return {"does": "wait"}
        if self.seat is not None:
            policy = self.seat.policy
            does = {"does": "learn"} if policy is None and not self.seat.is_opponent else {"does": "play as opponent"}
            version = {"version": "newest" if policy is None else policy.version} if self.seat.is_opponent else {}
            return {**does, "match": self.seat.match, **version}
        if not self.evaluates:
            return {"does": "learn", "deterministic": self.deterministic}
        return {
            "does": "evaluate",
            "version": self.version or "newest",
            "deterministic": self.deterministic,
            "episodes": self.episodes or "no limit",
        }


class TaskReader:
    """Reads the tasks of behavior ids from assignments; an unsupported task is logged once and replaced by learning.

    Args:
        has_opponents: Whether behavior ids can act as opponents; otherwise those that are to do so wait.
    """

    def __init__(self, *, has_opponents: bool = False) -> None:
        self._has_opponents = has_opponents
        self._notices = Throttle(interval_seconds=float("inf"))

    def of(self, assignment: policy_pb2.Assignment | None, behavior: str, team: int) -> Task:
        """Returns the task of a behavior id.

        Args:
            assignment: The learner's assignment; None before the first.
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
        is_opponent = part.role == int(AssignmentRole.OPPONENT)
        if is_opponent and not (self._has_opponents and part.match):
            self._leave_out(f"role {part.role}", part.behavior, instead="it waits")
            return Task(idles=True)
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
        if part.version and not is_opponent:
            self._leave_out("training with a pinned version", part.behavior)
        seat = _seat(assignment, part) if part.match else None
        return Task(deterministic=part.deterministic, seat=seat, told_by=assignment.id)

    def _leave_out(self, what: str, behavior: str, instead: str = "training continues") -> None:
        if self._notices.admit(what) is not None:
            _log.warning("assignment_not_acted_on", what=what, behavior=behavior, instead=instead)


def _seat(assignment: policy_pb2.Assignment, part: policy_pb2.BehaviorAssignment) -> Seat:
    """Returns the seat of a part; its opponent is the first other part of the match on the other side.

    The sides differ in their roles. Where all parts are opponents, in a tournament, they differ in their teams, and the
    number of episodes is limited.
    """
    others = [each for each in assignment.behaviors if each.match == part.match and _acts(each)]
    is_opponent = part.role == int(AssignmentRole.OPPONENT)
    is_tournament = is_opponent and all(each.role == part.role for each in others)
    other = next(
        (each for each in others if (each.team != part.team if is_tournament else each.role != part.role)), None
    )
    return Seat(
        match=part.match,
        team=part.team,
        is_opponent=is_opponent,
        policy=_pinned(part),
        opponent="" if other is None else f"{other.behavior}?team={other.team}",
        opponent_policy=None if other is None else _pinned(other),
        episodes=assignment.episodes if is_tournament else 0,
        random_steps=part.random_steps if is_opponent else 0,
        deterministic=is_opponent and part.deterministic,
    )


def _acts(part: policy_pb2.BehaviorAssignment) -> bool:
    return part.role in {int(AssignmentRole.LEARN), int(AssignmentRole.OPPONENT)}


def _pinned(part: policy_pb2.BehaviorAssignment) -> Pinned | None:
    """Returns the pinned policy of an opponent; None for the newest."""
    if part.role != int(AssignmentRole.OPPONENT) or not (part.sha256 or part.version):
        return None
    return Pinned(part.generation, part.version, part.sha256)
