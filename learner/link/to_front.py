"""Messages from the trainers to the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rollcast.enums import HoldReason
from rollcast.v1 import policy_pb2

from learner.link.control import Answer, Closed, Failed, Finished, Freed, Stopped
from learner.link.footprint import MemoryEstimate
from learner.link.matches import Match
from learner.link.opening import Checked, Logged, NotOpened, Opened
from learner.link.turns import Turn
from learner.shared.observe.behavior_state import TrainerStats
from learner.shared.observe.meters import RunCounts
from learner.shared.observe.view import GpuUse, LessonView, LockstepView
from learner.shared.policies import StoredPolicy

NOT_TRAINING: Final = "not_training"
"""Drop reason for steps of a behavior without a trainer, or whose trainer does not learn (any more)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Tells how much experience a trainer accepts. The service turns it into credit and holds.

    Attributes:
        owed_steps: Settled steps whose updates are still owed; they count as unsettled.
        ahead_limit_steps: Most unsettled steps: queued, owed, and granted to actors.
        hold: Why actors wait; None if they may step.
        until_version: With UPDATING, the version that ends the wait; 0 names none.
        update_steps: Steps of an update that actors collect exactly, each up to its quota; 0 if there are no quotas.
    """

    owed_steps: int = 0
    ahead_limit_steps: int = 0
    hold: HoldReason | None = None
    until_version: int = 0
    update_steps: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """Reports the fate of a behavior's steps since the trainer's last such message.

    It precedes the policy of the same turn. Steps without such a report are still queued.

    Attributes:
        behavior: Index of the behavior.
        through: Sequence of the newest chunk that the trainer has taken; 0 before the first.
        trained: Steps of completed updates, or that entered replay memory.
        dropped: Untrained steps, by reason.
        pace: Pace from now on.
    """

    behavior: int
    through: int
    trained: int
    dropped: Mapping[str, int]
    pace: Pace


@dataclass(frozen=True, slots=True)
class Done:
    """Ends the training of a behavior for good; all steps that its trainer had are settled.

    Attributes:
        behavior: Index of the behavior.
    """

    behavior: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Asks for the current books, for a checkpoint; the reply is `learner.link.to_trainers.Books`.

    Attributes:
        number: Number of the request; repeated in the answer.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Policy:
    """Publishes a version of a policy.

    Attributes:
        stored: Header and bytes.
        keep: Whether actors can get the version until its behavior is released, regardless of later versions. If True,
            the newest version may be sent again: it is then kept and not published again.
    """

    stored: StoredPolicy
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Releases a kept version of a policy.

    Attributes:
        behavior: Name of the behavior.
    """

    behavior: str


@dataclass(frozen=True, slots=True)
class SetHold:
    """Begins or ends a hold of all actors.

    Attributes:
        reason: Why actors wait.
        active: True begins the hold, False ends it.
    """

    reason: HoldReason
    active: bool


@dataclass(frozen=True, slots=True)
class Assign:
    """Replaces the assignment of all actors.

    Attributes:
        assignment: The assignment; the service sets its id.
        players: Sessions that play the lock-step round of the assignment; None for all.
    """

    assignment: policy_pb2.Assignment
    players: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class EndEvaluation:
    """Ends one actor's evaluation; the actor returns to the assignment of the run, or its match of self-play.

    Attributes:
        session_id: The session.
    """

    session_id: str


@dataclass(frozen=True, slots=True)
class StartMatch:
    """Gives one actor its match, which replaces its former one or waits for the end of its evaluation.

    An actor that has left plays none.

    Attributes:
        match: The match. Records of its games carry its number.
    """

    match: Match


@dataclass(frozen=True, slots=True)
class Stats:
    """Reports the state of the trainers. All values are cumulative, so only the newest message counts.

    It follows the steps settled and the policies published in the same turn.

    Attributes:
        made_at: When it was made, in monotonic seconds.
        trainers: Statistics of each trainer, by name of its behavior.
        at_target: Behaviors whose mean return has reached the target in this start of the learner.
        counts: Counts since this start of the learner.
        lessons: Lesson of each environment parameter, in the run file's order.
        lockstep: Progress of lock-step; None unless the run is in lock-step.
        last_error: The newest error in one line, empty if there is none.
        obstacle: Why nothing is trained while every actor plays an evaluation; otherwise empty.
        busy_seconds: Seconds in which the trainers' thread worked instead of waiting for work.
        is_paused: Whether training is paused.
        gpu: Memory of the training device; None unless the device is a GPU.
        changed: Settings of the service that have another value than at the start, by name.
    """

    made_at: float
    trainers: Mapping[str, TrainerStats] = field(default_factory=dict)
    at_target: frozenset[str] = frozenset()
    counts: RunCounts = field(default_factory=RunCounts)
    lessons: tuple[LessonView, ...] = ()
    lockstep: LockstepView | None = None
    last_error: str = ""
    obstacle: str = ""
    busy_seconds: float = 0.0
    is_paused: bool = False
    gpu: GpuUse | None = None
    changed: Mapping[str, float | None] = field(default_factory=dict)


ToFront = (
    Settled
    | Done
    | Cut
    | Policy
    | Release
    | SetHold
    | Assign
    | EndEvaluation
    | StartMatch
    | Stats
    | MemoryEstimate
    | Answer
    | Finished
    | Failed
    | Stopped
    | Closed
    | Checked
    | Opened
    | NotOpened
    | Logged
    | Freed
    | Turn
)
Send = Callable[[ToFront], object]
"""Sends a message to the service."""
