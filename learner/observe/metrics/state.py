"""Metrics that are read at each scrape from one snapshot: name, type, labels, help, and where each comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from learner.observe.metrics.values import BOTTLENECKS, DROP_REASONS, LOSE_EVENTS, OTHER, PREFIX
from learner.observe.view import BehaviorView, LockstepView, RunState, RunView


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
        view: what the panel and the page show of it.
        staged_steps: taken by the trainer and not yet in the ring.
        ring_steps: in the ring, waiting for the next update or in it.
        ring_capacity_steps: rows of the ring, of which each segment also needs one for its end.
        ahead_limit_steps: how many may be unsettled.
        unsettled_steps: queued, or taken and not settled.
        credit_steps: granted to actors and not yet spent, as far as they said.
        policy_version: the newest published one.
        policy_bytes: its size.
    """

    view: BehaviorView
    staged_steps: int = 0
    ring_steps: int = 0
    ring_capacity_steps: int = 0
    ahead_limit_steps: int = 0
    unsettled_steps: int = 0
    credit_steps: int = 0
    policy_version: int = 0
    policy_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """A learner.

    Attributes:
        run: what the panel and the page show of it.
        started_at: of this start, seconds since the epoch.
        behaviors: one each.
        sessions_connected: whose upload stream is open.
        sessions_silent: whose lease runs without one.
        policy_subscribers: open subscriptions.
        checkpoint_interval_seconds: the longest time between two run states.
        step_shares: each actor's steps lately, over a fair share; None without actors.
        policy_lags: the newest version less the one that acts, over actors; None without actors.
        gpu: memory of the training device; None without CUDA.
    """

    run: RunView
    started_at: float = 0.0
    behaviors: tuple[BehaviorNumbers, ...] = ()
    sessions_connected: int = 0
    sessions_silent: int = 0
    policy_subscribers: int = 0
    checkpoint_interval_seconds: float = 0.0
    step_shares: Spread | None = None
    policy_lags: Spread | None = None
    gpu: GpuMemory | None = None


Rows: TypeAlias = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class StateMetric:
    """One metric.

    Attributes:
        name: without prefix, and without ``_total``.
        kind: of the metric.
        documentation: its help.
        labels: names.
        rows: label values and value of each series.
    """

    name: str
    kind: Literal["gauge", "counter", "summary"]
    documentation: str
    labels: tuple[str, ...]
    rows: Callable[[MetricsSnapshot], Rows]

    def family(self, snapshot: MetricsSnapshot) -> Metric:
        """Returns the metric as of a snapshot."""
        name = PREFIX + self.name
        if self.kind == "summary":  # a quantile is a label of summaries alone
            metric = Metric(name, self.documentation, "summary")
            for values, number in self.rows(snapshot):
                metric.add_sample(name, dict(zip(self.labels, values, strict=True)), number)
            return metric
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(name, self.documentation, labels=self.labels)
        for values, number in self.rows(snapshot):
            family.add_metric(values, number)
        return family


class StateCollector(Collector):
    """Reads a snapshot at each scrape.

    Args:
        read: makes the snapshot.
    """

    def __init__(self, read: Callable[[], MetricsSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Yields every metric, all of one moment."""
        snapshot = self._read()
        for metric in STATE:
            yield metric.family(snapshot)
        if snapshot.gpu is not None:
            for metric in GPU_STATE:
                yield metric.family(snapshot)


def _run(name: str, documentation: str, value: Callable[[MetricsSnapshot], float]) -> StateMetric:
    return StateMetric(name, "gauge", documentation, (), lambda snapshot: [((), float(value(snapshot)))])


def _lockstep(name: str, documentation: str, value: Callable[[LockstepView], float]) -> StateMetric:
    """Makes a metric that only runs in lock-step have."""
    return StateMetric(
        name,
        "gauge",
        documentation,
        (),
        lambda snapshot: [] if snapshot.run.lockstep is None else [((), float(value(snapshot.run.lockstep)))],
    )


def _each(
    name: str,
    documentation: str,
    value: Callable[[BehaviorNumbers], float],
    kind: Literal["gauge", "counter"] = "gauge",
) -> StateMetric:
    return StateMetric(
        name,
        kind,
        documentation,
        ("behavior",),
        lambda snapshot: [((behavior.view.name,), float(value(behavior))) for behavior in snapshot.behaviors],
    )


def _counts(found: dict[str, int], known: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yields all known words, and what has another one under `OTHER` (or under itself, where there is no OTHER)."""
    counts = dict.fromkeys(known, 0)
    for word, steps in found.items():
        place = word if word in counts or OTHER not in known else OTHER
        counts[place] = counts.get(place, 0) + steps
    yield from counts.items()


def _dropped(snapshot: MetricsSnapshot) -> Rows:
    for behavior in snapshot.behaviors:
        for reason, steps in _counts(behavior.view.books["dropped"], DROP_REASONS):
            yield (behavior.view.name, reason), float(steps)


def _lost(snapshot: MetricsSnapshot) -> Rows:
    for behavior in snapshot.behaviors:
        for event, steps in _counts(behavior.view.books["lost"], LOSE_EVENTS):
            yield (behavior.view.name, event), float(steps)


def _returns(snapshot: MetricsSnapshot) -> Rows:
    for behavior in snapshot.behaviors:
        mean = behavior.view.mean_return_100
        if mean is not None and math.isfinite(mean):
            yield (behavior.view.name,), mean


def _spread(spread: Spread | None) -> Rows:
    return [] if spread is None else [((at,), value) for at, value in zip(("0", "0.5", "1"), spread, strict=True)]


STATE: Final[tuple[StateMetric, ...]] = (
    StateMetric("run_info", "gauge", "The run.", ("run_id",), lambda now: [((now.run.run_id,), 1.0)]),
    _run("generation", "How many times the learner of this run was started.", lambda now: now.run.generation),
    StateMetric(
        "run_state",
        "gauge",
        "What the learner does: 1 for the present state.",
        ("state",),
        lambda now: [((state.value,), float(state is now.run.state)) for state in RunState],
    ),
    _run("start_timestamp_seconds", "When this learner started.", lambda now: now.started_at),
    StateMetric(
        "sessions",
        "gauge",
        "Actors whose upload is open (connected), or whose lease runs without one (silent).",
        ("state",),
        lambda now: [(("connected",), float(now.sessions_connected)), (("silent",), float(now.sessions_silent))],
    ),
    _each(
        "env_steps_received", "Steps in chunks that were accounted for.", lambda b: b.view.books["received"], "counter"
    ),
    _each("env_steps_trained", "Steps in completed updates.", lambda b: b.view.books["trained"], "counter"),
    StateMetric(
        "env_steps_dropped", "counter", "Steps that were not and will not be trained.", ("behavior", "reason"), _dropped
    ),
    _each("env_steps_queued", "Steps accepted whose fate is open.", lambda b: b.view.books["queued"]),
    StateMetric("env_steps_lost", "counter", "Steps that a stop took.", ("behavior", "event"), _lost),
    _each("env_steps_duplicate", "Steps in chunks that came twice.", lambda b: b.view.books["duplicate"], "counter"),
    _each("unknown_sessions", "Sessions from before a restart that are not back.", lambda b: b.view.books["unknown"]),
    _each(
        "env_steps_taken",
        "Steps taken by all actors, as far as they said.",
        lambda b: b.view.env_steps_taken,
        "counter",
    ),
    _each("episodes", "Finished training episodes.", lambda b: b.view.episodes, "counter"),
    StateMetric("episode_return_mean", "gauge", "Mean return of the newest episodes.", ("behavior",), _returns),
    _each("queue_steps", "Steps that wait for the trainer.", lambda b: b.view.queued_steps),
    _each("queue_bytes", "Memory of the chunks that wait for the trainer.", lambda b: b.view.queued_bytes),
    _each("queue_capacity_bytes", "Most memory that waiting chunks may take.", lambda b: b.view.queue_capacity_bytes),
    _each("staged_steps", "Steps taken by the trainer and not yet in the ring.", lambda b: b.staged_steps),
    _each("ring_steps", "Steps in the ring on the training device.", lambda b: b.ring_steps),
    _each("ring_capacity_steps", "Rows of the ring on the training device.", lambda b: b.ring_capacity_steps),
    _each("ahead_limit_steps", "How many steps may be unsettled or granted.", lambda b: b.ahead_limit_steps),
    _each("unsettled_steps", "Steps queued, or taken and not settled.", lambda b: b.unsettled_steps),
    _each("credit_steps", "Steps granted to actors and not yet taken.", lambda b: b.credit_steps),
    _each("policy_version", "The newest published version.", lambda b: b.policy_version),
    _each("policy_bytes", "Size of the newest published policy.", lambda b: b.policy_bytes),
    StateMetric(
        "lesson_number",
        "gauge",
        "Which lesson each environment parameter is in, from 0.",
        ("parameter",),
        lambda now: [((lesson.parameter,), float(lesson.number)) for lesson in now.run.lessons],
    ),
    _lockstep("lockstep_round", "Completed rounds of lock-step.", lambda now: now.round),
    _lockstep(
        "lockstep_reproducible",
        "Whether another run of the same settings comes to the same.",
        lambda now: now.is_reproducible,
    ),
    _run("policy_subscribers", "Actors subscribed to policies.", lambda now: now.policy_subscribers),
    _run(
        "checkpoint_interval_seconds",
        "Longest time between two run states (rollcast.checkpoint_seconds).",
        lambda now: now.checkpoint_interval_seconds,
    ),
    StateMetric(
        "actor_step_share_ratio",
        "summary",
        "Steps of an actor lately over a fair share: least, median and most over actors.",
        ("quantile",),
        lambda now: _spread(now.step_shares),
    ),
    StateMetric(
        "actor_policy_lag_versions",
        "summary",
        "Newest version less the one that acts: least, median and most over actors.",
        ("quantile",),
        lambda now: _spread(now.policy_lags),
    ),
    _run(
        "actor_busy_ratio",
        "Mean share of the time that actors did not wait.",
        lambda now: now.run.bottleneck.actor_busy,
    ),
    _run(
        "actor_wait_ratio",
        "Mean share of the time that actors waited.",
        lambda now: 1.0 - now.run.bottleneck.actor_busy if now.run.bottleneck.name != "none" else 0.0,
    ),
    _run(
        "trainer_busy_ratio", "Share of the time in which trainers worked.", lambda now: now.run.bottleneck.learner_busy
    ),
    StateMetric(
        "bottleneck",
        "gauge",
        "What holds the run back: 1 for the present verdict.",
        ("verdict",),
        lambda now: [((name,), float(name == now.run.bottleneck.name)) for name in BOTTLENECKS],
    ),
)
GPU_STATE: Final[tuple[StateMetric, ...]] = (
    _run(
        "gpu_memory_allocated_bytes",
        "Memory of tensors on the device.",
        lambda now: now.gpu.allocated if now.gpu else 0,
    ),
    _run("gpu_memory_reserved_bytes", "Memory that torch holds there.", lambda now: now.gpu.reserved if now.gpu else 0),
)
"""Only where the training device is a GPU."""
