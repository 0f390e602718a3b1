"""Events of one behavior's trainer, and the collectors behind them."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString
from rollcast.enums import HoldReason

from learner.observe.metrics.values import (
    EPISODE_STEPS,
    EVALUATION_OUTCOMES,
    HOLD_REASONS,
    LAG_VERSIONS,
    LOSS_TERMS,
    PREFIX,
    SKIP_REASONS,
    UPDATE_SECONDS,
    WAIT_SECONDS,
)

BEHAVIOR = "behavior"


class ArraySeries:
    """The histogram of one behavior. Thread-safe.

    Args:
        bounds: upper bounds of the buckets, ascending and finite; a value equal to one belongs to its bucket.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.asarray(bounds, np.float64)
        # As the client library writes the bounds of its own histograms.
        self._names = [str(floatToGoString(bound)) for bound in (*bounds, math.inf)]  # type: ignore[no-untyped-call]
        self._counts = np.zeros(len(bounds) + 1, np.float64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, values: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Counts values; those that are NaN or infinite are left out.

        Args:
            values: ``[K]``, any real dtype.
            weights: ``[K]``, how often each value is counted; None counts each once.
        """
        flat = np.asarray(values, np.float64).reshape(-1)
        finite = np.isfinite(flat)
        chosen = None if weights is None else np.asarray(weights, np.float64).reshape(-1)
        if not finite.all():
            flat = flat[finite]
            chosen = None if chosen is None else chosen[finite]
        counts = np.bincount(np.searchsorted(self._bounds, flat, side="left"), chosen, minlength=len(self._counts))
        self.add(counts, float(flat.sum() if chosen is None else flat @ chosen))

    def add(self, counts: Sequence[float] | NDArray[Any], total: float) -> None:
        """Adds values that were counted elsewhere.

        Args:
            counts: ``[len(bounds) + 1]``, values of each bucket, the last one for those above all bounds.
            total: their sum.
        """
        with self._lock:
            self._counts += counts
            self._sum += total

    def sample(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the cumulative buckets, each with its bound as Prometheus writes it, and the sum."""
        with self._lock:
            counts, total = self._counts.tolist(), self._sum
        return list(zip(self._names, itertools.accumulate(counts), strict=True)), total


class ArrayHistogram(Collector):
    """A histogram with the label ``behavior``.

    Args:
        name: of the metric.
        documentation: its help.
        bounds: upper bounds of the buckets.
        registry: where it is read.
    """

    def __init__(self, name: str, documentation: str, bounds: Sequence[float], registry: CollectorRegistry) -> None:
        self.bounds = tuple(bounds)
        self._name = name
        self._documentation = documentation
        self._series: dict[str, ArraySeries] = {}
        registry.register(self)

    def of(self, behavior: str) -> ArraySeries:
        """Returns the series of a behavior, a new one with nothing in it if there is none."""
        series = self._series.get(behavior)
        return series if series is not None else self._series.setdefault(behavior, ArraySeries(self.bounds))

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Yields the metric as it is now."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[BEHAVIOR])
        for behavior, series in self._series.copy().items():  # a copy is one moment; others add meanwhile
            buckets, total = series.sample()
            family.add_metric([behavior], buckets=buckets, sum_value=None)
            # The client library leaves these two out where a bound is negative: then the sum may fall. Prometheus
            # itself takes them, and the number of episodes is worth having.
            family.add_sample(f"{self._name}_count", {BEHAVIOR: behavior}, buckets[-1][1])
            family.add_sample(f"{self._name}_sum", {BEHAVIOR: behavior}, total)
        yield family


class HoldClock(Collector):
    """Adds up the time for which each reason held anyone; several holders at once count once. Thread-safe.

    Args:
        registry: where it is read.
        clock: monotonic seconds.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holders: dict[HoldReason, set[str]] = {reason: set() for reason in HOLD_REASONS}
        self._since: dict[HoldReason, float] = {}
        self._seconds: dict[HoldReason, float] = dict.fromkeys(HOLD_REASONS, 0.0)
        registry.register(self)

    def set(self, reason: HoldReason, holder: str, *, active: bool) -> None:
        """Notes that a holder (a behavior, or the run) begins or ends to hold; again is harmless."""
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
        """Yields which reasons hold now, and for how long each did."""
        held = GaugeMetricFamily(f"{PREFIX}held", "Whether actors are held back.", labels=["reason"])
        seconds = CounterMetricFamily(f"{PREFIX}held_seconds", "Time for which actors were held.", labels=["reason"])
        with self._lock:
            now = self._clock()
            for reason, name in HOLD_REASONS.items():
                since = self._since.get(reason)
                held.add_metric([name], float(since is not None))
                seconds.add_metric([name], self._seconds[reason] + (0.0 if since is None else now - since))
        yield held
        yield seconds


@dataclass(frozen=True, slots=True)
class LossNumbers:
    """What an update came to. The three terms are weighted, so that they add up to the loss.

    Attributes:
        policy: term of the policy.
        value: term of the critic.
        entropy: term of the bonus, negative where there is one.
        grad_norm: L2 norm of the last minibatch's gradient, before it was clipped.
        approx_kl: divergence of the new policy from the recorded one, last minibatch.
        clip_ratio: share of ratios beyond the clip, last minibatch.
        explained_variance: share of the variance of the returns that the critic explains.
        entropy_nats: mean entropy of the policy.
        learning_rate: of this update.
        log_prob_error_max: largest difference between recorded and own log-probability on fresh rows.
    """

    policy: float
    value: float
    entropy: float
    grad_norm: float
    approx_kl: float
    clip_ratio: float
    explained_variance: float
    entropy_nats: float
    learning_rate: float
    log_prob_error_max: float

    @property
    def loss(self) -> float:
        """The sum of the terms."""
        return self.policy + self.value + self.entropy


class ReplayNumbers(NamedTuple):
    """A replay memory; the last three since the process began.

    Attributes:
        steps: in it.
        owed: updates that are owed for steps that came.
        drawn: draws, of which one step may have many.
        evicted: steps that made room.
        evicted_undrawn: of these, steps that were never drawn.
    """

    steps: int
    owed: int
    drawn: int
    evicted: int
    evicted_undrawn: int


_GAUGES: Final[Mapping[str, str]] = {
    "loss": "Loss of the last update.",
    "grad_norm": "Norm of the gradient before clipping, last minibatch.",
    "approx_kl": "Divergence from the recorded policy, last minibatch.",
    "clip_ratio": "Share of ratios that are beyond the clip, last minibatch.",
    "explained_variance_ratio": "Variance of returns that the critic explains.",
    "entropy_nats": "Mean entropy of the policy.",
    "learning_rate": "Learning rate of the last update.",
    "log_prob_error_max": "Largest difference of log-probabilities on fresh steps.",
    "replay_steps": "Steps in replay memory.",
    "owed_updates": "Updates that are owed for steps that entered replay memory.",
    "last_update_timestamp_seconds": "When the last update was completed.",
    "last_publish_timestamp_seconds": "When the newest version was published.",
}
_LATE_GAUGES: Final[Mapping[str, str]] = {
    "evaluation_return_mean": "Mean return of the last evaluation.",
    "evaluation_return_std": "Standard deviation of its returns.",
    "evaluation_step": "Trainer step of the policy that it measured.",
    "best_return": "What the best checkpoint was chosen by.",
    "best_step": "Trainer step of the best checkpoint.",
}
"""Their series exist from the first value on."""
_COUNTERS: Final[Mapping[str, str]] = {
    "updates": "Completed updates.",
    "replay_drawn_steps": "Draws from replay memory, of which a step may have many.",
    "replay_evicted_steps": "Steps that left replay memory to make room.",
    "replay_evicted_undrawn_steps": "Of these, steps that were never drawn.",
    "evaluation_episodes": "Episodes that counted in evaluations.",
}
_REPLAY_COUNTERS: Final = ("replay_drawn_steps", "replay_evicted_steps", "replay_evicted_undrawn_steps")


class BehaviorFamilies:
    """The metrics with the label ``behavior`` that trainers feed.

    Args:
        registry: where they are read.
        return_buckets: bounds of the histogram of returns.
        holds: who is held, and for how long.
        queue_wait: from ack to trainer; not told apart by behavior.
    """

    def __init__(
        self, registry: CollectorRegistry, return_buckets: tuple[float, ...], holds: HoldClock, queue_wait: Histogram
    ) -> None:
        self.holds = holds
        self.queue_wait = queue_wait

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(PREFIX + name, text, (BEHAVIOR, *labels), registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, (BEHAVIOR, *labels), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(PREFIX + name, text, (BEHAVIOR, *labels), buckets=buckets, registry=registry)

        def arrays(name: str, text: str, bounds: tuple[float, ...]) -> ArrayHistogram:
            return ArrayHistogram(PREFIX + name, text, bounds, registry)

        self.policy_lag = arrays("policy_lag_versions", "Versions between acting and learning, a step.", LAG_VERSIONS)
        self.episode_return = arrays("episode_return", "Returns of training episodes.", return_buckets)
        self.episode_steps = arrays("episode_steps", "Lengths of training episodes.", EPISODE_STEPS)
        self.batch_wait = histogram("batch_wait_seconds", "Time of collecting, an update.", WAIT_SECONDS)
        self.update_seconds = histogram("update_seconds", "Time of updating, by phase.", UPDATE_SECONDS, "phase")
        self.gauges = {name: gauge(name, text) for name, text in {**_GAUGES, **_LATE_GAUGES}.items()}
        self.counters = {name: counter(name, text) for name, text in _COUNTERS.items()}
        self.loss_term = gauge("loss_term", "Weighted terms of the loss; they add up to it.", "term")
        self.statistic = gauge("environment_statistic", "Statistics that environments send, by their own keys.", "key")
        self.signal_reward = gauge("episode_signal_reward", "Reward of an episode by signal, last update.", "signal")
        self.skipped_updates = counter("skipped_updates", "Updates that were thrown away.", "reason")
        self.evaluations = counter("evaluations", "Evaluations during the run, by how they ended.", "outcome")


class BehaviorMetrics:
    """One behavior. Its series exist, at zero, from here on.

    The two timestamps begin with this moment, so that an alert on their age means "since the trainer began".

    Args:
        families: all behaviors'.
        name: the behavior.

    Attributes:
        losses: what the last update came to; None before the first.
        queue_wait: seconds from ack to trainer, for each chunk.
        policy_lag: versions, for each trained step.
        episode_return: returns of training episodes.
        episode_steps: their lengths.
        batch_wait: seconds of each collection.
        stage, assemble, optimize, publish: seconds of the phases of each update.
    """

    def __init__(self, families: BehaviorFamilies, name: str) -> None:
        self._name = name
        self._families = families
        self._replay = ReplayNumbers(0, 0, 0, 0, 0)
        self.losses: LossNumbers | None = None
        self.queue_wait = families.queue_wait
        self.policy_lag = families.policy_lag.of(name)
        self.episode_return = families.episode_return.of(name)
        self.episode_steps = families.episode_steps.of(name)
        self.batch_wait = families.batch_wait.labels(name)
        self.stage, self.assemble, self.optimize, self.publish = (
            families.update_seconds.labels(name, phase) for phase in ("stage", "assemble", "optimize", "publish")
        )
        self._gauges = {gauge: families.gauges[gauge].labels(name) for gauge in _GAUGES}
        self._counters = {counter: families.counters[counter].labels(name) for counter in _COUNTERS}
        self._terms = {term: families.loss_term.labels(name, term) for term in LOSS_TERMS}
        self._skipped = {reason: families.skipped_updates.labels(name, reason) for reason in SKIP_REASONS}
        self._evaluations = {outcome: families.evaluations.labels(name, outcome) for outcome in EVALUATION_OUTCOMES}
        self._gauges["last_update_timestamp_seconds"].set(time.time())
        self._gauges["last_publish_timestamp_seconds"].set(time.time())

    @property
    def lag_bounds(self) -> tuple[float, ...]:
        """Bounds of `policy_lag`, for whoever counts on another device."""
        return LAG_VERSIONS

    def note_losses(self, numbers: LossNumbers) -> None:
        """Shows what an update came to."""
        self.losses = numbers
        for term, gauge in self._terms.items():
            gauge.set(getattr(numbers, term))
        for name, gauge in self._gauges.items():
            if hasattr(numbers, name):
                gauge.set(getattr(numbers, name))
        self._gauges["explained_variance_ratio"].set(numbers.explained_variance)

    def show_replay(self, numbers: ReplayNumbers) -> None:
        """Shows a replay memory."""
        self._gauges["replay_steps"].set(numbers.steps)
        self._gauges["owed_updates"].set(numbers.owed)
        for counter, now, before in zip(_REPLAY_COUNTERS, numbers[2:], self._replay[2:], strict=True):
            self._counters[counter].inc(now - before)
        self._replay = numbers

    def note_update(self, count: int = 1) -> None:
        """Counts completed updates."""
        self._counters["updates"].inc(count)
        self._gauges["last_update_timestamp_seconds"].set(time.time())

    def show_statistic(self, key: str, value: float) -> None:
        """Shows a statistic of the environments; each key is a time series, so that the caller bounds their number."""
        self._families.statistic.labels(self._name, key).set(value)

    def show_signal(self, signal: str, reward: float) -> None:
        """Shows what an episode brings of a reward signal, times its strength."""
        self._families.signal_reward.labels(self._name, signal).set(reward)

    def note_evaluation(self, *, mean: float, std: float, episodes: int, step: int, is_complete: bool = True) -> None:
        """Shows what an evaluation came to."""
        self._evaluations["complete" if is_complete else "cut_short"].inc()
        self._counters["evaluation_episodes"].inc(episodes)
        self._show_late(evaluation_return_mean=mean, evaluation_return_std=std, evaluation_step=step)

    def note_empty_evaluation(self) -> None:
        """Counts an evaluation that ended before any of its episodes."""
        self._evaluations["cut_short"].inc()

    def note_best(self, reward: float, step: int) -> None:
        """Shows what the best checkpoint was chosen by, and its step."""
        self._show_late(best_return=reward, best_step=step)

    def note_skipped(self, reason: str) -> None:
        """Counts an update that was thrown away."""
        self._skipped[reason].inc()

    def note_published(self) -> None:
        """Notes that a version was published now."""
        self._gauges["last_publish_timestamp_seconds"].set(time.time())

    def hold(self, *, active: bool) -> None:
        """Notes that the actors wait for an update of this behavior, or wait no more."""
        self._families.holds.set(HoldReason.UPDATING, self._name, active=active)

    def _show_late(self, **values: float) -> None:
        for name, value in values.items():
            self._families.gauges[name].labels(self._name).set(value)
