"""What a learner is like at one moment, in plain values, for a scrape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from learner.observe.view import LedgerNumbers, LockstepView, RunState, empty_books


class Spread(NamedTuple):
    """Smallest, middle and largest of a number over the actors; per-actor numbers would be a time series each."""

    smallest: float
    median: float
    largest: float


class GpuMemory(NamedTuple):
    """Bytes on the training device."""

    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True)
class BehaviorNumbers:
    """One behavior. Steps, unless the name says bytes.

    Attributes:
        name: its name.
        books: the ledger's, from one call.
        env_steps_taken: by all actors.
        episodes: finished training episodes.
        mean_return: over the newest of them; None before the first.
        queue_steps: wait for the trainer.
        queue_bytes: their memory.
        queue_capacity_bytes: the most there may be.
        staged_steps: taken by the trainer and not yet in the ring.
        ring_steps: in the ring, waiting for the next update or in it.
        ring_capacity_steps: rows of the ring, of which each segment also needs one for its end.
        ahead_limit_steps: how many may be unsettled.
        unsettled_steps: queued, or taken and not settled.
        credit_steps: granted to actors and not yet spent, as far as they said.
        policy_version: the newest published one.
        policy_bytes: its size.
    """

    name: str
    books: LedgerNumbers
    env_steps_taken: int = 0
    episodes: int = 0
    mean_return: float | None = None
    queue_steps: int = 0
    queue_bytes: int = 0
    queue_capacity_bytes: int = 0
    staged_steps: int = 0
    ring_steps: int = 0
    ring_capacity_steps: int = 0
    ahead_limit_steps: int = 0
    unsettled_steps: int = 0
    credit_steps: int = 0
    policy_version: int = 0
    policy_bytes: int = 0

    @classmethod
    def empty(cls, name: str) -> BehaviorNumbers:
        """Returns a behavior of which nothing has arrived."""
        return cls(name, empty_books())


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """A learner.

    Attributes:
        run_id: the run.
        generation: how many times it was started.
        state: what the learner does.
        started_at: of this start, seconds since the epoch.
        behaviors: one each.
        sessions_connected: whose upload stream is open.
        sessions_silent: whose lease runs without one.
        policy_subscribers: open subscriptions.
        checkpoint_interval_seconds: the longest time between two run states.
        step_shares: each actor's steps lately, over a fair share; None without actors.
        policy_lags: the newest version less the one that acts, over actors; None without actors.
        actor_busy_ratio: mean share of the time that actors did not wait.
        actor_wait_ratio: mean share that they waited.
        trainer_busy_ratio: share of the time in which trainers did something.
        verdict: learner, actors, network or none: what holds the run back.
        gpu: memory of the training device; None without CUDA.
        lessons: number of the lesson of each environment parameter.
        lockstep: how far it is; None unless the run is in lock-step.
    """

    run_id: str
    generation: int = 0
    state: RunState = RunState.WAITING
    started_at: float = 0.0
    behaviors: tuple[BehaviorNumbers, ...] = ()
    sessions_connected: int = 0
    sessions_silent: int = 0
    policy_subscribers: int = 0
    checkpoint_interval_seconds: float = 0.0
    step_shares: Spread | None = None
    policy_lags: Spread | None = None
    actor_busy_ratio: float = 0.0
    actor_wait_ratio: float = 0.0
    trainer_busy_ratio: float = 0.0
    verdict: str = "none"
    gpu: GpuMemory | None = None
    lessons: Mapping[str, int] = field(default_factory=dict)
    lockstep: LockstepView | None = None
