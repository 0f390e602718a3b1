"""The state of a run as `rollcast status --json` tells it, with zeros for what it does not tell."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from learner.cli.operator import Operator
from learner.cli.status import status_document
from learner.shared.observe.view import EnvironmentView, LessonView, PolicyView

T = TypeVar("T")


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
    max_steps: int = 0
    env_steps_taken: int = 0
    episodes: int = 0
    mean_return_100: float = 0.0
    mean_lag: float = 0.0
    books: Books = Books()
    queued_bytes: int = 0
    env_steps_per_second: float = 0.0
    log_prob_error_max: float = 0.0
    evaluation_return_mean: float = 0.0
    best_return: float | None = None
    best_step: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


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
    agents: int = 0
    spooled_steps: int = 0


@dataclass(frozen=True)
class Actor:
    """One actor."""

    actor_name: str = ""
    actor_index: int = 0
    session_id: str = ""
    connected: bool = False
    last_seen_ms: int = 0
    books: tuple[ActorBooks, ...] = ()
    policies: tuple[PolicyView, ...] = ()
    env_steps_per_second: float = 0.0
    credit_steps: int = 0
    wait_ratio: float = 0.0
    waits_for: str = ""
    round_trip_seconds: float = 0.0
    lag_versions: int | None = None
    environments: EnvironmentView = field(default_factory=EnvironmentView)
    environment_failed_seconds: float = 0.0


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
    checkpoint_round: int = 0
    quota_steps: int = 0
    reproducible: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Quarantined:
    """An actor that is shut out."""

    actor_name: str = ""
    principal: str = ""
    remaining_ms: int = 0
    times: int = 0
    last_fault: str = ""


@dataclass(frozen=True)
class Away:
    """An actor that is away."""

    actor_name: str = ""
    actor_index: int = 0
    away_ms: int = 0


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
    server_version: str = ""
    verdict: Verdict = Verdict()
    lessons: tuple[LessonView, ...] = ()
    lockstep: Lockstep = Lockstep()
    quarantined: tuple[Quarantined, ...] = ()
    actors_away: int = 0
    away: tuple[Away, ...] = ()


def state_of(operator: Operator) -> State:
    """Returns the state of a run."""
    return told(status_document(operator.status()))


def told(text: str) -> State:
    """Returns the state that the command has printed."""
    return _of(State, json.loads(text))


def _of(kind: type[T], row: Mapping[str, Any]) -> T:
    hints, names = get_type_hints(kind), {each.name for each in fields(kind)}  # type: ignore[arg-type]
    assert row.keys() <= names, f"{kind.__name__} lacks {row.keys() - names}"
    return kind(**{name: _value(hints[name], value) for name, value in row.items()})


def _value(kind: Any, value: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _value(parts[0], value)
    if origin is tuple:
        return tuple(_of(parts[0], each) for each in value)
    if origin is dict:
        return {key: parts[1](each) for key, each in value.items()}
    return _of(kind, value) if hasattr(kind, "__dataclass_fields__") else kind(value)
