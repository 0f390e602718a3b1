"""One view of the run, from which the panel, the log lines and the operator's status are made."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypedDict


class RunState(enum.StrEnum):
    """What the learner does; the names are those of ``rollcast.v1.RunState`` without the prefix, in lower case."""

    WAITING = "waiting"
    TRAINING = "training"
    PAUSED = "paused"
    DRAINING = "draining"
    FAILED = "failed"


class LedgerNumbers(TypedDict):
    """The learner's books of one behavior, in steps: received = trained + sum(dropped) + queued + sum(lost).

    ``duplicate`` (steps that came twice) and ``unknown`` (sessions of an earlier generation that have not come back)
    stand outside the equation.
    """

    received: int
    trained: int
    dropped: dict[str, int]
    duplicate: int
    queued: int
    lost: dict[str, int]
    unknown: int


class ActorNumbers(TypedDict):
    """What became of the steps of one behavior that the learner never received, in steps.

    ``env_steps_taken`` = received (in the learner's books) + sum(discarded) + sum(dropped) + outstanding.
    ``discarded`` (before they were part of a chunk) and ``dropped`` (in chunks that were never acked) are what actors
    gave up, by reason; ``outstanding`` are those that were still with the actors when they last spoke.
    """

    discarded: dict[str, int]
    dropped: dict[str, int]
    outstanding: int


def empty_books() -> LedgerNumbers:
    """Returns the books of a behavior of which nothing has arrived."""
    return LedgerNumbers(received=0, trained=0, dropped={}, duplicate=0, queued=0, lost={}, unknown=0)


@dataclass(frozen=True, slots=True)
class BehaviorView:
    """One behavior, at one moment.

    Attributes:
        name: the behavior id.
        version: the published policy version.
        env_steps_taken: steps taken by all actors, trained or not.
        env_steps_trained: steps in completed updates.
        max_steps: where training ends.
        steps_per_second: steps taken a second, lately.
        episodes: finished training episodes.
        mean_return_100: over the newest finished training episodes (100 of them, unless the run file says otherwise).
        mean_lag: versions between acting and learning, mean over the rows of the last update.
        queued_steps: steps that wait for the trainer.
        queued_bytes: their bytes.
        queue_capacity_bytes: the most bytes that may wait; 0 if there is no limit.
        log_prob_error_max: largest difference between recorded and own log-probability on fresh rows, last update.
        evaluation_return_mean: mean return of the last evaluation during the run, None before the first.
        best_return: what the best checkpoint was chosen by, None before there is one.
        best_step: its trainer step.
        target_return: the mean return at which the run stops, if any.
        books: the ledger.
    """

    name: str
    version: int = 0
    env_steps_taken: int = 0
    env_steps_trained: int = 0
    max_steps: int = 0
    steps_per_second: float = 0.0
    episodes: int = 0
    mean_return_100: float | None = None
    mean_lag: float = 0.0
    queued_steps: int = 0
    queued_bytes: int = 0
    queue_capacity_bytes: int = 0
    log_prob_error_max: float = 0.0
    evaluation_return_mean: float | None = None
    best_return: float | None = None
    best_step: int = 0
    target_return: float | None = None
    books: LedgerNumbers = field(default_factory=empty_books)

    @property
    def queue_fill(self) -> float:
        """The share of the queue that is full, by bytes, from 0 to 1 (over 1 where the limit was passed)."""
        return self.queued_bytes / self.queue_capacity_bytes if self.queue_capacity_bytes > 0 else 0.0

    @property
    def is_balanced(self) -> bool:
        """Says whether the books account for every step."""
        books = self.books
        fates = books["trained"] + sum(books["dropped"].values()) + books["queued"] + sum(books["lost"].values())
        return books["received"] == fates


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Where the run's time goes, over the last window.

    Attributes:
        name: ``learner``, ``actors`` or ``network``, whichever bounds the run; ``none`` while nobody can say.
        text: the same in a sentence, with what could be done about it.
        learner_busy: share of the window in which the trainer did something, 0 to 1.
        actor_busy: mean over actors of the share they did not spend waiting, 0 to 1.
        network_share: the share that neither explains, 0 to 1.
    """

    name: str = "none"
    text: str = "too little was seen to say what bounds the run"
    learner_busy: float = 0.0
    actor_busy: float = 0.0
    network_share: float = 0.0


@dataclass(frozen=True, slots=True)
class LessonView:
    """Which lesson an environment parameter is in.

    Attributes:
        parameter: its name.
        number: of the lesson, from 0.
        lessons: how many there are.
        name: of the lesson.
    """

    parameter: str
    number: int
    lessons: int
    name: str


@dataclass(frozen=True, slots=True)
class LockstepView:
    """How far a run in lock-step is.

    Attributes:
        actors: that a round needs.
        joined: that take part in the present round, or have joined before the first.
        round: completed rounds of the run.
        checkpoint_round: the round after which the newest checkpoint was saved.
        quota_steps: that each agent takes in a round; 0 before it is known.
        reason: what another run of the same settings would not repeat; empty while there is nothing.
    """

    actors: int
    joined: int = 0
    round: int = 0
    checkpoint_round: int = 0
    quota_steps: int = 0
    reason: str = ""

    @property
    def is_reproducible(self) -> bool:
        """Whether another run of the same settings comes to the same."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class RunView:
    """The run, at one moment.

    Attributes:
        run_id: its name.
        state: what the learner does.
        generation: how many times the learner of this run was started.
        uptime_seconds: since this start.
        address: where actors connect, ``host:port``.
        actors: sessions that are alive.
        last_error: the newest error in one line, empty if none.
        behaviors: one each, in the order of declaration.
        bottleneck: what bounds the run.
        lessons: one for each environment parameter, in the run file's order.
        lockstep: how far it is; None unless the run is in lock-step.
    """

    run_id: str
    state: RunState
    generation: int
    uptime_seconds: float
    address: str
    actors: int = 0
    last_error: str = ""
    behaviors: tuple[BehaviorView, ...] = ()
    bottleneck: Bottleneck = Bottleneck()
    lessons: tuple[LessonView, ...] = ()
    lockstep: LockstepView | None = None


@dataclass(frozen=True, slots=True)
class ActorBooksView:
    """An actor's own books, all its behaviors together, in steps; as it reported them last.

    produced = open + sum(discarded) + sum(dropped) + unacked + acked
    """

    produced: int = 0
    open: int = 0
    discarded: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    unacked: int = 0
    acked: int = 0

    @property
    def balanced(self) -> bool:
        """Says whether the equation holds."""
        fates = self.open + sum(self.discarded.values()) + sum(self.dropped.values()) + self.unacked + self.acked
        return self.produced == fates


@dataclass(frozen=True, slots=True)
class ActorView:
    """One actor, at one moment.

    Attributes:
        name: as it calls itself; from outside.
        index: its place in the run.
        connected: its upload stream is open.
        last_seen_seconds: since it was heard of.
        steps_per_second: steps it took a second, lately.
        lag: versions by which what acts there is older than the newest, the largest over its behaviors; None before
            it reported one of this start of the learner.
        credit_steps: steps it may still take.
        wait_share: share of its time spent waiting, 0 to 1; None if it did not say.
        waits_for: what it waited for most, one of `learner.ingest.times.WAIT_REASONS`; empty for nothing.
        round_trip_seconds: from sending a chunk to its ack; None if it did not say.
        error: why its newest policy does not act, empty if it does; from outside.
        books: where its steps are.
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
    error: str = ""
    books: ActorBooksView = field(default_factory=ActorBooksView)
