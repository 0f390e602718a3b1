"""What tests look at of the state of a run, as `rollcast status --json` tells it, with zeros for what it does not tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import TypeAdapter

from learner.cli.operator import Operator
from learner.cli.status import status_document
from learner.shared.observe.view import EnvironmentView, LessonView, PolicyView


@dataclass(frozen=True)
class Count:
    """Steps of one reason."""

    reason: str = ""
    steps: int = 0


@dataclass(frozen=True)
class Books:
    """The learner's books of a behavior."""

    received: int = 0
    trained: int = 0
    dropped: tuple[Count, ...] = ()
    queued: int = 0
    lost: tuple[Count, ...] = ()
    duplicate: int = 0
    unknown_sessions: int = 0


@dataclass(frozen=True)
class Behavior:
    """One behavior."""

    behavior: str = ""
    version: int = 0
    env_steps_trained: int = 0
    env_steps_taken: int = 0
    episodes: int = 0
    mean_return_100: float = 0.0
    books: Books = Books()
    env_steps_per_second: float = 0.0
    log_prob_error_max: float = 0.0
    best_return: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ActorBooks:
    """An actor's books of a behavior."""

    behavior_index: int = 0
    produced_steps: int = 0
    open_steps: int = 0
    discarded: tuple[Count, ...] = ()
    dropped: tuple[Count, ...] = ()
    unacked_steps: int = 0
    acked_steps: int = 0
    ghost_steps: int = 0
    spooled_steps: int = 0


@dataclass(frozen=True)
class Actor:
    """One actor."""

    actor_name: str = ""
    actor_index: int = 0
    session_id: str = ""
    connected: bool = False
    books: tuple[ActorBooks, ...] = ()
    policies: tuple[PolicyView, ...] = ()
    env_steps_per_second: float = 0.0
    wait_ratio: float = 0.0
    waits_for: str = ""
    round_trip_seconds: float = 0.0
    lag_versions: int | None = None
    environments: EnvironmentView = field(default_factory=EnvironmentView)


@dataclass(frozen=True)
class Verdict:
    """What limits the run."""

    bottleneck: str = "BOTTLENECK_UNSPECIFIED"
    text: str = ""
    learner_busy_ratio: float = 0.0
    actor_busy_ratio: float = 0.0
    network_ratio: float = 0.0


@dataclass(frozen=True)
class Lockstep:
    """The progress of a run in lock-step."""

    actors: int = 0
    joined: int = 0
    round: int = 0
    quota_steps: int = 0
    reproducible: bool = False
    reason: str = ""


@dataclass(frozen=True)
class State:
    """The state of a run."""

    run_id: str = ""
    generation: int = 0
    state: str = ""
    uptime_seconds: float = 0.0
    behaviors: tuple[Behavior, ...] = ()
    actors: tuple[Actor, ...] = ()
    last_error: str = ""
    verdict: Verdict = Verdict()
    lessons: tuple[LessonView, ...] = ()
    lockstep: Lockstep = Lockstep()
    actors_away: int = 0


_STATE = TypeAdapter(State)


def state_of(operator: Operator) -> State:
    """Returns the state of a run."""
    return told(status_document(operator.status()))


def told(text: str) -> State:
    """Returns the state that the command has printed."""
    return _STATE.validate_json(text)
