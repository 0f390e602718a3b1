"""What the metrics show of a running learner, read from its parts at each scrape."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.session import ActorSession
from learner.ingest.sessions import SessionTable
from learner.observe.metrics.state import BehaviorNumbers, GpuMemory, MetricsSnapshot, Spread
from learner.observe.view import BehaviorView, RunView
from learner.publish.store import PolicyStore
from learner.service.server import LearnerServer
from learner.trainers.base import Trainer


@dataclass(frozen=True, slots=True)
class Scrape:
    """Makes the snapshots of `learner.observe.metrics.learner.LearnerMetrics.watch`.

    Every part may be read from any thread.

    Attributes:
        view: returns the status at this moment.
        behaviors: the behaviors of the run.
        sessions: the actors.
        store: the policies.
        server: streams and rates.
        trainers: by behavior.
        checkpoint_seconds: the longest time between two run states.
        gpu: returns the memory of the training device; None where that is not a GPU.
        started_at: start of the learner, in seconds since the epoch.
    """

    view: Callable[[], RunView]
    behaviors: BehaviorTable
    sessions: SessionTable
    store: PolicyStore
    server: LearnerServer
    trainers: Callable[[], Mapping[str, Trainer]]
    checkpoint_seconds: float
    gpu: Callable[[], GpuMemory] | None
    started_at: float = 0.0

    def snapshot(self) -> MetricsSnapshot:
        """Reads everything."""
        view = self.view()
        live = self.sessions.live()
        connected = sum(session.is_connected for session in live)
        return MetricsSnapshot(
            view,
            started_at=self.started_at,
            behaviors=tuple(self._behavior(shown, live) for shown in view.behaviors),
            sessions_connected=connected,
            sessions_silent=len(live) - connected,
            policy_subscribers=self.server.subscribers,
            checkpoint_interval_seconds=self.checkpoint_seconds if view.lockstep is None else math.inf,
            step_shares=self._step_shares(live),
            policy_lags=_spread([float(each.policy_lag) for each in live if each.policy_lag is not None]),
            gpu=None if self.gpu is None else self.gpu(),
        )

    def _behavior(self, view: BehaviorView, live: Iterable[ActorSession]) -> BehaviorNumbers:
        behavior = self.behaviors.by_name(view.name)
        if behavior is None:
            return BehaviorNumbers(view)
        trainer = self.trainers().get(view.name)
        policy = self.store.latest(view.name)
        ring = None if trainer is None else trainer.ring
        return BehaviorNumbers(
            view,
            staged_steps=0 if ring is None else ring.staged_steps,
            ring_steps=0 if ring is None else ring.steps,
            ring_capacity_steps=0 if ring is None else ring.capacity_steps,
            ahead_limit_steps=behavior.queue.pace.ahead_limit_steps,
            unsettled_steps=behavior.queue.unsettled_steps,
            credit_steps=self._credit(behavior, live),
            policy_version=0 if policy is None else policy.description.version,
            policy_bytes=0 if policy is None else len(policy.payload),
        )

    def _credit(self, behavior: Behavior, live: Iterable[ActorSession]) -> int:
        with self.sessions.lock:
            accounts = [session.accounts.get(behavior.index) for session in live]
            return sum(max(0, each.granted_steps - each.produced_steps) for each in accounts if each is not None)

    def _step_shares(self, live: Iterable[ActorSession]) -> Spread | None:
        rates = [self.server.rates.of(session) for session in live]
        total = sum(rates)
        return _spread([rate * len(rates) / total for rate in rates]) if total > 0 else None


def _spread(values: list[float]) -> Spread | None:
    return Spread(min(values), statistics.median(values), max(values)) if values else None
