"""Metrics that are read at each scrape from one snapshot: name, type, labels, help and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from learner.service.metrics.behaviors import count_families
from learner.shared.observe.behavior_state import FIELDS, BehaviorState, Field
from learner.shared.observe.meters import RunCounts
from learner.shared.observe.values import (
    BOTTLENECKS,
    DROP_REASONS,
    LEFT_OUT_REASONS,
    LOSE_EVENTS,
    OTHER,
    PREFIX,
    TRAINER_PREFIX,
)
from learner.shared.observe.view import GpuUse, LockstepView, RunState, RunView


class Spread(NamedTuple):
    """Smallest, median and largest value over the actors; a metric per actor would create a time series for each."""

    smallest: float
    median: float
    largest: float


class Disk(NamedTuple):
    """Space of a disk, in bytes."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The state of a learner at one moment.

    Attributes:
        run: The view shown by the panel and the page.
        started_at: When this start began, in seconds since the epoch.
        is_over: Whether the run has ended by itself.
        disk: Space where the run's folder is; None if unknown.
        sessions_connected: Sessions with an open upload stream.
        sessions_silent: Sessions without an open upload stream whose lease is still valid.
        policy_subscribers: Open subscriptions.
        checkpoint_interval_seconds: Longest time between two run states, in seconds.
        step_shares: Each actor's recent steps relative to an equal share; None without actors.
        policy_lags: Newest version minus the acting version, over actors; None without actors.
        gpu: Memory of the training device; None without CUDA.
        counts: The trainers' counts.
        stats_age_seconds: Seconds since the trainers' last statistics.
    """

    run: RunView
    started_at: float = 0.0
    is_over: bool = False
    disk: Disk | None = None
    sessions_connected: int = 0
    sessions_silent: int = 0
    policy_subscribers: int = 0
    checkpoint_interval_seconds: float = 0.0
    step_shares: Spread | None = None
    policy_lags: Spread | None = None
    gpu: GpuUse | None = None
    counts: RunCounts = field(default_factory=RunCounts)
    stats_age_seconds: float = 0.0


_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily
Shape: TypeAlias = tuple[str, tuple[str, ...]]
"""Type of a metric, and its labels after ``behavior``."""
Rows: TypeAlias = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class StateMetric:
    """Describes one metric.

    Attributes:
        name: Name without prefix and without ``_total``.
        kind: Type of the metric.
        documentation: Help of the metric.
        labels: Names of the labels.
        rows: Label values and value of each series.
    """

    name: str
    kind: Literal["gauge", "counter", "summary"]
    documentation: str
    labels: tuple[str, ...]
    rows: Callable[[MetricsSnapshot], Rows]

    def family(self, snapshot: MetricsSnapshot) -> Metric:
        """Returns the metric for a snapshot."""
        name = PREFIX + self.name
        if self.kind == "summary":  # only summaries have quantiles as a label
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
        read: Returns a snapshot.
        return_buckets: Bounds of the histograms of returns.
    """

    def __init__(self, read: Callable[[], MetricsSnapshot], return_buckets: tuple[float, ...]) -> None:
        self._read = read
        self._return_buckets = return_buckets

    def collect(self) -> Iterable[Metric]:
        """Yields every metric from one snapshot."""
        snapshot = self._read()
        for metric in STATE:
            yield metric.family(snapshot)
        yield from behavior_families(snapshot.run.behaviors)
        yield from count_families(snapshot.counts, self._return_buckets)
        if snapshot.gpu is not None:
            for metric in GPU_STATE:
                yield metric.family(snapshot)


def behavior_families(behaviors: Iterable[BehaviorState]) -> Iterable[Metric]:
    """Returns the metrics of all behaviors' numbers, as described by the table of fields.

    If two trainers have fields of one name that differ in type or label, the first behavior's field is exported.
    """
    families: dict[str, tuple[Shape, _Family]] = {}
    for each in FIELDS:  # creates these metrics even without a behavior
        _open(PREFIX, each, families)
    for state in behaviors:
        for prefix, fields in ((PREFIX, FIELDS), (TRAINER_PREFIX, state.own_fields)):
            for each in fields:
                family = _open(prefix, each, families)
                if family is not None:
                    for values, number in state.rows(each):
                        family.add_metric((state.name, *values), number)
    return [family for _, family in families.values()]


def _open(prefix: str, each: Field, families: dict[str, tuple[Shape, _Family]]) -> _Family | None:
    """Returns the metric of a number, creating it if necessary; None for a number without one."""
    metric = each.metric
    if metric is None:
        return None
    name = prefix + (metric.name or each.name)
    further = (each.keyed_by,) if each.keyed_by else () if metric.label is None else metric.label[:1]
    shape = (metric.kind, further)
    if name not in families:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        families[name] = shape, kind(name, each.text, labels=("behavior", *further))
    found, family = families[name]
    return family if found == shape else None


def _run(name: str, documentation: str, value: Callable[[MetricsSnapshot], float | None]) -> StateMetric:
    """Creates a metric of the run, without a series while its value is None."""

    def rows(snapshot: MetricsSnapshot) -> Rows:
        found = value(snapshot)
        return [] if found is None else [((), float(found))]

    return StateMetric(name, "gauge", documentation, (), rows)


def _lockstep(name: str, documentation: str, value: Callable[[LockstepView], float]) -> StateMetric:
    """Creates a metric that only lock-step runs have."""
    return _run(name, documentation, lambda now: None if now.run.lockstep is None else value(now.run.lockstep))


def _left_out(snapshot: MetricsSnapshot) -> list[tuple[tuple[str, ...], float]]:
    lockstep = snapshot.run.lockstep
    return [] if lockstep is None else [((each,), float(lockstep.left_out.get(each, 0))) for each in LEFT_OUT_REASONS]


def _each(
    name: str,
    documentation: str,
    value: Callable[[BehaviorState], float],
    kind: Literal["gauge", "counter"] = "gauge",
) -> StateMetric:
    return StateMetric(
        name,
        kind,
        documentation,
        ("behavior",),
        lambda snapshot: [((behavior.name,), float(value(behavior))) for behavior in snapshot.run.behaviors],
    )


def _counts(found: dict[str, int], known: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yields the counts of all known reasons and of any others found.

    The others are summed as `OTHER` if `known` contains it; without it, each keeps its name.
    """
    counts = dict.fromkeys(known, 0)
    for word, steps in found.items():
        place = word if word in counts or OTHER not in known else OTHER
        counts[place] = counts.get(place, 0) + steps
    yield from counts.items()


def _fate(fate: Literal["dropped", "lost"], known: tuple[str, ...]) -> Callable[[MetricsSnapshot], Rows]:
    return lambda now: [
        ((behavior.name, word), float(steps))
        for behavior in now.run.behaviors
        for word, steps in _counts(behavior.books[fate], known)
    ]


def _spread(spread: Spread | None) -> Rows:
    return [] if spread is None else [((at,), value) for at, value in zip(("0", "0.5", "1"), spread, strict=True)]


STATE: Final[tuple[StateMetric, ...]] = (
    StateMetric("run_info", "gauge", "The run.", ("run_id",), lambda now: [((now.run.run_id,), 1.0)]),
    _run("generation", "Number of starts of this run's learner.", lambda now: now.run.generation),
    StateMetric(
        "run_state",
        "gauge",
        "1 for the current state of the learner.",
        ("state",),
        lambda now: [((state.value,), float(state is now.run.state)) for state in RunState],
    ),
    _run(
        "run_over",
        "1 once the run has ended by itself; the learner waits for one more scrape before it ends.",
        lambda now: now.is_over,
    ),
    _run(
        "disk_free_bytes",
        "Free space where the run's folder is.",
        lambda now: None if now.disk is None else now.disk.free,
    ),
    _run(
        "disk_bytes",
        "Size of the disk where the run's folder is.",
        lambda now: None if now.disk is None else now.disk.total,
    ),
    _run("start_timestamp_seconds", "Time at which this learner started.", lambda now: now.started_at),
    _run(
        "stats_age_seconds",
        "Seconds since the trainers' last report; all metrics that they count are from that moment.",
        lambda now: now.stats_age_seconds,
    ),
    StateMetric(
        "sessions",
        "gauge",
        "Actors with an open upload (connected), a lease but no upload (silent), or neither, but a session to return to (away).",
        ("state",),
        lambda now: [
            (("connected",), float(now.sessions_connected)),
            (("silent",), float(now.sessions_silent)),
            (("away",), float(len(now.run.away))),
        ],
    ),
    _run("quarantined_actors", "Actors that are shut out for faults of form.", lambda now: len(now.run.quarantined)),
    _each("env_steps_received", "Steps in chunks that were accounted for.", lambda b: b.books["received"], "counter"),
    _each("env_steps_trained", "Steps in completed updates.", lambda b: b.books["trained"], "counter"),
    StateMetric(
        "env_steps_dropped",
        "counter",
        "Received steps that will not be trained; lockstep: not of a round; mate: a group mate's steps were dropped.",
        ("behavior", "reason"),
        _fate("dropped", DROP_REASONS),
    ),
    _each(
        "env_steps_queued",
        "Received steps that are not yet trained, dropped or lost: queue, staging, ring, update buffer.",
        lambda b: b.books["queued"],
    ),
    StateMetric(
        "env_steps_lost",
        "counter",
        "Steps lost when a learner stopped: queued or acked after the checkpoint; rollback: acked as only actors say.",
        ("behavior", "event"),
        _fate("lost", LOSE_EVENTS),
    ),
    _each(
        "env_steps_duplicate",
        "Steps in chunks that arrived twice; outside the books.",
        lambda b: b.books["duplicate"],
        "counter",
    ),
    _each(
        "unknown_sessions",
        "Sessions from before a restart whose actors have not returned.",
        lambda b: b.books["unknown"],
    ),
    StateMetric(
        "lesson_number",
        "gauge",
        "Current lesson of each environment parameter, from 0; 0 without a curriculum.",
        ("parameter",),
        lambda now: [((lesson.parameter,), float(lesson.number)) for lesson in now.run.lessons],
    ),
    _lockstep("lockstep_round", "Completed rounds of lock-step.", lambda now: now.round),
    _lockstep(
        "lockstep_reproducible",
        "1 while another run of the same settings would give the same result.",
        lambda now: now.is_reproducible,
    ),
    StateMetric(
        "lockstep_left_out",
        "counter",
        "Actors left out of rounds until they return; late: beyond max_wait_seconds; too_large: filled the queue.",
        ("reason",),
        _left_out,
    ),
    _run("policy_subscribers", "Actors subscribed to policies.", lambda now: now.policy_subscribers),
    _run(
        "checkpoint_interval_seconds",
        "Longest time between two run states; infinite in lock-step, where rounds decide.",
        lambda now: now.checkpoint_interval_seconds,
    ),
    StateMetric(
        "actor_step_share_ratio",
        "summary",
        "An actor's recent share of the steps over its fair share: minimum, median and maximum.",
        ("quantile",),
        lambda now: _spread(now.step_shares),
    ),
    StateMetric(
        "actor_policy_lag_versions",
        "summary",
        "Newest version minus the actor's version at its last report: minimum, median, maximum.",
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
        "Mean share of the time that actors waited for the learner.",
        lambda now: 1.0 - now.run.bottleneck.actor_busy if now.run.bottleneck.name != "none" else 0.0,
    ),
    _run(
        "trainer_busy_ratio", "Share of the time in which trainers worked.", lambda now: now.run.bottleneck.learner_busy
    ),
    StateMetric(
        "bottleneck",
        "gauge",
        "1 for what limits the speed of the run.",
        ("verdict",),
        lambda now: [((name,), float(name == now.run.bottleneck.name)) for name in BOTTLENECKS],
    ),
)
GPU_STATE: Final[tuple[StateMetric, ...]] = (
    _run("gpu_memory_bytes", "Memory of the training device.", lambda now: now.gpu.total if now.gpu else 0),
    _run(
        "gpu_memory_allocated_bytes",
        "Memory of tensors on the training device.",
        lambda now: now.gpu.allocated if now.gpu else 0,
    ),
    _run(
        "gpu_memory_reserved_bytes",
        "Memory that torch holds on the training device.",
        lambda now: now.gpu.reserved if now.gpu else 0,
    ),
    _run(
        "gpu_busy_ratio",
        "Share of the time in which the training device computed.",
        lambda now: None if now.gpu is None else now.gpu.busy,
    ),
)
"""Only if the training device is a GPU."""
