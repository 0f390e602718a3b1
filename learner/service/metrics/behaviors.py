"""Exports the trainers' counts and the duration of holds as metrics."""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString
from rollcast.enums import HoldReason

from learner.shared.observe.meters import BehaviorCounts, Buckets, CheckpointCounts, RunCounts, no_values
from learner.shared.observe.values import (
    CHECKPOINT_SECONDS,
    EPISODE_STEPS,
    HOLD_REASONS,
    LAG_VERSIONS,
    PREFIX,
    UPDATE_SECONDS,
    WAIT_SECONDS,
)

_Rows: TypeAlias = Iterable[tuple[tuple[str, ...], Buckets]]
_Of: TypeAlias = Callable[[BehaviorCounts], Buckets]
_OfReason: TypeAlias = Callable[[BehaviorCounts], Mapping[str, int]]
_BEHAVIOR: Final = ("behavior",)


@functools.cache
def _bound_names(bounds: tuple[float, ...]) -> tuple[str, ...]:
    """Returns the bounds as the client library formats those of its own histograms."""
    return tuple(str(floatToGoString(bound)) for bound in (*bounds, math.inf))  # type: ignore[no-untyped-call]


def _histogram(
    name: str, documentation: str, bounds: tuple[float, ...], labels: tuple[str, ...], rows: _Rows
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(PREFIX + name, documentation, labels=labels)
    for values, (counts, total) in rows:
        buckets = list(zip(_bound_names(bounds), itertools.accumulate(map(float, counts)), strict=True))
        family.add_metric(values, buckets=buckets, sum_value=None)
        # The client library leaves these two out if a bound is negative, because the sum may then fall. Prometheus
        # itself accepts them, and the number of episodes is useful.
        series = dict(zip(labels, values, strict=True))
        family.add_sample(f"{PREFIX}{name}_count", series, buckets[-1][1])
        family.add_sample(f"{PREFIX}{name}_sum", series, total)
    return family


def _counter(
    name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def count_families(counts: RunCounts, return_buckets: tuple[float, ...]) -> Iterator[Metric]:
    """Yields the metrics of all the trainers' counts.

    Args:
        counts: Counts of the run.
        return_buckets: Bounds of the histograms of returns.
    """
    behaviors = counts.behaviors

    def histogram(name: str, text: str, bounds: tuple[float, ...], of: _Of) -> Metric:
        return _histogram(name, text, bounds, _BEHAVIOR, (((name,), of(each)) for name, each in behaviors.items()))

    def by_label(name: str, text: str, label: str, of: _OfReason) -> Metric:
        rows = (((behavior, word), number) for behavior, each in behaviors.items() for word, number in of(each).items())
        return _counter(name, text, (*_BEHAVIOR, label), rows)

    waits = _total((each.queue_wait for each in behaviors.values()), WAIT_SECONDS)
    yield _histogram(
        "queue_wait_seconds",
        "Time from the arrival of a chunk until the trainer takes it.",
        WAIT_SECONDS,
        (),
        [((), waits)],
    )
    lag = "Versions between acting and learning, for each trained step."
    yield histogram("policy_lag_versions", lag, LAG_VERSIONS, lambda each: each.policy_lag)
    returns = "Returns of training episodes (bounds: rollcast.return_buckets)."
    yield histogram("episode_return", returns, return_buckets, lambda each: each.episode_return)
    yield histogram("episode_steps", "Lengths of training episodes.", EPISODE_STEPS, lambda each: each.episode_steps)
    yield histogram(
        "batch_wait_seconds", "Time of collecting before each update.", WAIT_SECONDS, lambda each: each.batch_wait
    )
    yield _histogram(
        "update_seconds",
        "Time of an update's phases: stage (rows to the device since the last update), assemble (values, "
        "advantages), optimize (epochs), publish (export, statistics).",
        UPDATE_SECONDS,
        (*_BEHAVIOR, "phase"),
        (
            ((behavior, phase), buckets)
            for behavior, each in behaviors.items()
            for phase, buckets in each.phase_seconds.items()
        ),
    )
    yield _counter(
        "evaluation_episodes",
        "Episodes that counted in evaluations; no other metric counts them.",
        _BEHAVIOR,
        (((name,), each.evaluation_episodes) for name, each in behaviors.items()),
    )
    thrown_away = "Updates undone because they were not finite."
    yield by_label("skipped_updates", thrown_away, "reason", lambda each: each.skipped_updates)
    ended = "Evaluations during the run, and under --inference windows of episodes; cut_short: training ended first."
    yield by_label("evaluations", ended, "outcome", lambda each: each.evaluations)
    yield from _checkpoint_families(counts.checkpoints)
    failures = (((writer,), number) for writer, number in counts.writer_failures.items())
    yield _counter("stats_writer_failures", "Failures to write statistics.", ("writer",), failures)


def _checkpoint_families(counts: CheckpointCounts) -> Iterator[Metric]:
    rows = [((), counts.seconds)]
    yield _histogram("checkpoint_seconds", "Time to write a checkpoint.", CHECKPOINT_SECONDS, (), rows)
    outcomes = (((outcome,), number) for outcome, number in counts.outcomes.items())
    yield _counter("checkpoints", "Run states and models written.", ("outcome",), outcomes)
    last = "When the last run state was written; before the first, when the learner started."
    yield GaugeMetricFamily(f"{PREFIX}last_checkpoint_timestamp_seconds", last, value=counts.last_run_state_at)


def _total(found: Iterable[Buckets], bounds: tuple[float, ...]) -> Buckets:
    together = no_values(bounds)
    for each in found:
        counts = tuple(map(sum, zip(together.counts, each.counts, strict=True)))
        together = Buckets(counts, together.total + each.total)
    return together


class HoldClock(Collector):
    """Measures how long each reason held any holder; simultaneous holders count once. Thread-safe.

    Args:
        registry: Registry of the metrics.
        clock: Returns monotonic seconds.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holders: dict[HoldReason, set[str]] = {reason: set() for reason in HOLD_REASONS}
        self._since: dict[HoldReason, float] = {}
        self._seconds: dict[HoldReason, float] = dict.fromkeys(HOLD_REASONS, 0.0)
        registry.register(self)

    def set(self, reason: HoldReason, holder: str, *, active: bool) -> None:
        """Records that a holder (a behavior, or the run) begins or ends a hold; safe to repeat."""
        holders = self._holders.get(reason)
        if holders is None or (holder in holders) == active:
            return
        with self._lock:
            now = self._clock()
            if active:
                if not holders:
                    self._since[reason] = now
                holders.add(holder)
                return
            holders.discard(holder)
            if not holders and reason in self._since:
                self._seconds[reason] += now - self._since.pop(reason)

    def collect(self) -> Iterable[Metric]:
        """Yields the reasons that hold now, and the total duration of each."""
        held = GaugeMetricFamily(f"{PREFIX}held", "1 while actors are held back, by reason.", labels=["reason"])
        seconds = CounterMetricFamily(
            f"{PREFIX}held_seconds", "Time during which actors were held back, by reason.", labels=["reason"]
        )
        with self._lock:
            now = self._clock()
            for reason, name in HOLD_REASONS.items():
                since = self._since.get(reason)
                held.add_metric([name], float(since is not None))
                seconds.add_metric([name], self._seconds[reason] + (0.0 if since is None else now - since))
        yield held
        yield seconds
