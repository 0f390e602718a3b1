"""One picture of the run, from which the panel, the log lines and the operator's status are made."""

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
    target_return: float | None = None
    books: LedgerNumbers = field(default_factory=empty_books)

    @property
    def queue_fill(self) -> float:
        """The share of the queue that is full, by bytes, from 0 to 1 (over 1 where the limit was passed)."""
        return self.queued_bytes / self.queue_capacity_bytes if self.queue_capacity_bytes > 0 else 0.0


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
    """

    run_id: str
    state: RunState
    generation: int
    uptime_seconds: float
    address: str
    actors: int = 0
    last_error: str = ""
    behaviors: tuple[BehaviorView, ...] = ()
