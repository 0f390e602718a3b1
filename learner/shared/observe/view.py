"""The view of the run from which the panel, the log lines and the operator's status are made."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from learner.shared.observe.behavior_state import BehaviorState

MAX_NAMED: Final = 100
"""Most actors that are listed as shut out, and as away, the newest ones."""


class RunState(enum.StrEnum):
    """The state of the learner."""

    WAITING = "waiting"
    TRAINING = "training"
    PAUSED = "paused"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The verdict on what limited the run in the last window.

    Attributes:
        name: ``learner``, ``actors`` or ``network``, whichever limits the run; ``none`` while it is unknown.
        text: The verdict as a sentence, with a remedy.
        learner_busy: Share of the window in which the trainer worked, 0 to 1.
        actor_busy: Mean share of the window in which actors did not wait, 0 to 1.
        network_share: Share that neither of these explains, 0 to 1.
    """

    name: str = "none"
    text: str = "not enough data yet to identify the bottleneck"
    learner_busy: float = 0.0
    actor_busy: float = 0.0
    network_share: float = 0.0


MAX_TROUBLES: Final = 20


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Memory of the training device in bytes, of tensors, of torch, and all of it; and how busy it is.

    ``busy`` is the share of the last moments in which it computed, as NVML reports it; None without NVML.
    """

    allocated: int
    reserved: int
    total: int
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class LessonView:
    """The current lesson of an environment parameter.

    Attributes:
        parameter: Name of the parameter.
        number: Number of the lesson, from 0.
        lessons: Number of lessons.
        name: Name of the lesson.
    """

    parameter: str
    number: int
    lessons: int
    name: str


@dataclass(frozen=True, slots=True)
class LockstepView:
    """The progress of a lock-step run.

    Attributes:
        actors: Actors that a round needs.
        joined: Actors in the current round; before the first round, those that have joined.
        round: Completed rounds of the run.
        checkpoint_round: The round after which the newest checkpoint was saved.
        quota_steps: Steps of each agent in a round; 0 before it is known.
        reason: Why another run with the same settings would differ; empty if it would not.
        left_out: How often an actor was left out of rounds in this process, by reason.
    """

    actors: int
    joined: int = 0
    round: int = 0
    checkpoint_round: int = 0
    quota_steps: int = 0
    reason: str = ""
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def is_reproducible(self) -> bool:
        """True if another run with the same settings gives the same result."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """An actor that is shut out for faults of form.

    Attributes:
        principal: Its principal; empty if actors are not identified.
        name: The actor's name for itself; untrusted.
        seconds_left: Seconds until it may come back.
        times: How often it has been shut out.
        fault: Its last fault; untrusted.
    """

    principal: str
    name: str
    seconds_left: float
    times: int
    fault: str


@dataclass(frozen=True, slots=True)
class AwayView:
    """An actor whose lease has run out: its name for itself, untrusted, its place, and the seconds since it was heard."""

    name: str
    index: int
    seconds: float


class TroubleView(NamedTuple):
    """An actor with a problem: its name for itself and its error, both untrusted, its failures and the steps it gave up."""

    actor: str
    error: str
    failures: int
    given_up_steps: int


@dataclass(frozen=True, slots=True)
class RunView:
    """The run at one moment.

    Attributes:
        run_id: Name of the run.
        state: State of the learner.
        generation: Number of starts of this run's learner.
        uptime_seconds: Seconds since this start.
        address: Address for actors, ``host:port``.
        actors: Number of live sessions.
        last_error: The newest error in one line; empty if there is none.
        behaviors: State of each behavior, in the order of declaration.
        bottleneck: What limits the run.
        lessons: Lesson of each environment parameter, in the run file's order.
        lockstep: Progress of lock-step; None unless the run is in lock-step.
        actors_opened: Sessions opened for new actors in this start.
        quarantined: Actors that are shut out.
        away: Actors whose lease has run out, and that may still return to their sessions, the latest first.
        tls: Whether the address uses TLS.
        games: Whether all behaviors of the run file have self-play.
        page: URL of the status page, without a token; empty for none.
        troubles: Actors with a problem, at most `MAX_TROUBLES`.
        troubled: Number of all actors with a problem.
        has_own_actors: Whether the learner's command starts actors itself.
        gpu: Use of the training device; None unless it is a GPU.
    """

    run_id: str
    state: RunState
    generation: int
    uptime_seconds: float
    address: str
    actors: int = 0
    last_error: str = ""
    behaviors: tuple[BehaviorState, ...] = ()
    bottleneck: Bottleneck = Bottleneck()
    lessons: tuple[LessonView, ...] = ()
    lockstep: LockstepView | None = None
    actors_opened: int = 0
    quarantined: tuple[QuarantineView, ...] = ()
    away: tuple[AwayView, ...] = ()
    tls: bool = False
    games: bool = False
    page: str = ""
    troubles: tuple[TroubleView, ...] = ()
    troubled: int = 0
    has_own_actors: bool = False
    gpu: GpuUse | None = None

    @property
    def actor_command(self) -> str:
        """Command that starts an actor; with TLS it takes the folder that a join code makes."""
        kind = "boards --game NAME" if self.games else "gym --env ENVIRONMENT"
        return f"rollcast act {kind} {'--certs DIR' if self.tls else f'--learner {self.address}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorBooksView:
    """An actor's own counts, summed over its behaviors, in steps, as last reported.

    produced = open + spooled + sum(discarded) + sum(dropped) + unacked + acked
    """

    produced: int = 0
    open: int = 0
    discarded: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    unacked: int = 0
    acked: int = 0
    spooled: int = 0

    @property
    def balanced(self) -> bool:
        """True if the equation holds."""
        given_up = sum(self.discarded.values()) + sum(self.dropped.values())
        return self.produced == self.open + self.spooled + given_up + self.unacked + self.acked


@dataclass(frozen=True, slots=True)
class ReportView(ActorBooksView):
    """An actor's own counts for one behavior, in steps, as last reported.

    Attributes:
        behavior_index: Place of the behavior in the order of declaration.
        ghost: Steps of opponents, which are in no other count.
        agents: Agents that act at present.
    """

    behavior_index: int
    ghost: int = 0
    agents: int = 0


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policy that acts at an actor for one behavior, and why its newest one cannot be used; the error is untrusted."""

    behavior_index: int
    generation: int = 0
    version: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class EnvironmentView:
    """The environments of an actor; the texts are untrusted.

    Attributes:
        failures: How often they have failed.
        error: The newest failure; empty if there was none.
        hanging: The call that has not returned for a while; empty if there is none.
        hanging_seconds: Seconds since that call began.
    """

    failures: int = 0
    error: str = ""
    hanging: str = ""
    hanging_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ActorDetails:
    """The newest reports of an actor.

    Attributes:
        reports: Its counts for each behavior.
        policies: Its acting policies.
        environments: Its environments; None if not reported.
        failed_seconds: Seconds since a failure of them was last reported; None if there was none.
    """

    reports: tuple[ReportView, ...] = ()
    policies: tuple[PolicyView, ...] = ()
    environments: EnvironmentView | None = None
    failed_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ActorView:
    """One actor at one moment.

    Attributes:
        name: The actor's name for itself; untrusted.
        index: Its place in the run.
        connected: Whether its upload stream is open.
        last_seen_seconds: Seconds since the actor was last heard.
        steps_per_second: Recent steps per second.
        lag: Policy lag in versions, the largest over its behaviors; None until it reports a policy of this start of
            the learner.
        credit_steps: Steps that it may still take.
        wait_share: Share of its time spent waiting, 0 to 1; None if not reported.
        waits_for: Reason of its longest wait, one of `learner.service.ingest.times.WAIT_REASONS`; empty for none.
        round_trip_seconds: Seconds from sending a chunk to its ack; None if not reported.
        failures: How often its environments have failed.
        error: Problem of its environments, or why its newest policy does not act; empty if there is none; untrusted.
        books: Counts of its steps.
        session_id: A short name of its session, as in logs; the id itself is known to the actor alone.
        details: Its newest reports; None if the status lacks the room for them.
    """

    name: str
    index: int
    connected: bool
    last_seen_seconds: float
    steps_per_second: float = 0.0
    lag: int | None = None
    credit_steps: int = 0
    wait_share: float | None = None
    waits_for: str = ""
    round_trip_seconds: float | None = None
    failures: int = 0
    error: str = ""
    books: ActorBooksView = field(default_factory=ActorBooksView)
    session_id: str = ""
    details: ActorDetails | None = None


@dataclass(frozen=True, slots=True)
class StatusView:
    """The run and its actors at one moment: everything that operators see.

    Attributes:
        run: The run and its behaviors.
        actors: Actors by place.
        version: Version of Rollcast.
        more_away: Number of actors that are away and not in `run.away`.
    """

    run: RunView
    actors: tuple[ActorView, ...]
    version: str
    more_away: int = 0
