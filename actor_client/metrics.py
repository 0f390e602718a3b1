"""Metrics of an actor for Prometheus, made from plain numbers at each scrape. See deploy/METRICS.md.

Loaded only if metrics are served: the client library takes a few megabytes.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import GCCollector, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString
from rollcast.enums import HoldReason

from actor_client.connection.books import ActorSnapshot, BooksView
from actor_client.counts import OTHER, Histogram, RolloutCounts

PREFIX: Final = "rollcast_actor_"
DISCARD_REASONS: Final = ("env_error", "generation", "reset", "session_lost", OTHER)
BOOKS_DROP_REASONS: Final = ("generation", "session_lost", "too_large", "outage_full", OTHER)
REJECT_REASONS: Final = (
    *("generation", "not_finite", "bad_action", "bad_observation", "not_training", "opponent"),
    OTHER,
)
HOLD_REASONS: Final = tuple(reason.name.lower() for reason in HoldReason if reason is not HoldReason.UNSPECIFIED)


@dataclass(frozen=True, slots=True)
class ActorBuild:
    """Version and revision of Rollcast, and the environment."""

    version: str
    revision: str
    env: str


class ActorMetrics(Collector):
    """All metrics of an actor. Two objects in one process are independent.

    Args:
        build: Version and environment of the actor.
        read: Makes the snapshot of a scrape; called in the thread that answers it.
    """

    def __init__(self, build: ActorBuild, read: Callable[[], ActorSnapshot]) -> None:
        self.registry = CollectorRegistry()
        self._build = build
        self._read = read
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(self)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format (`actor_client.serving.CONTENT_TYPE`)."""
        return generate_latest(self.registry)

    def collect(self) -> Iterable[Metric]:
        """Yields all metrics except those of the process, read at one moment."""
        now = self._read()
        build = GaugeMetricFamily(
            f"{PREFIX}build_info",
            "Versions of this process, and its environment.",
            labels=["version", "revision", "env"],
        )
        build.add_metric([self._build.version, self._build.revision, self._build.env], 1.0)
        yield build
        yield from _rollout(now.rollout)
        yield from _books(now.books)
        yield from _chunks(now)
        yield from _connection(now)
        yield from _policies(now)


def _rollout(counts: RolloutCounts) -> Iterable[Metric]:
    yield counter("env_steps", "Environment steps taken.", counts.env_steps)
    yield _counters("episodes", "Episodes ended; env_error: the environment failed.", "end", counts.episodes)
    yield counter(
        "env_failures", "Failures after which environments or Unity players were created again.", counts.env_failures
    )
    yield histogram("env_step_seconds", "Time of one step of all environments, sampled.", counts.env_step_seconds)
    yield histogram("act_seconds", "Time of choosing the actions of all environments, sampled.", counts.act_seconds)
    yield histogram("record_seconds", "Time of recording one step of all environments, sampled.", counts.record_seconds)
    yield _counters("wait_seconds", "Time without stepping, by the reason for waiting.", "reason", counts.wait_seconds)


def _books(books: BooksView) -> Iterable[Metric]:
    yield counter("steps_produced", "Steps recorded.", books.produced)
    yield _gauge("steps_open", "Steps that are not in a chunk yet.", books.open)
    yield _gauge(
        "steps_spooled",
        "Steps in chunks without a number: recorded without a connection, or kept over a restart of the learner.",
        books.spooled,
    )
    yield _gauge("steps_unacked", "Steps in chunks that the learner has not settled.", books.unacked)
    yield counter("steps_acked", "Steps that the learner settled, including refused ones.", books.acked)
    discarded = _known(books.discarded, DISCARD_REASONS)
    yield _counters("steps_discarded", "Steps discarded before they were in a chunk.", "reason", discarded)
    yield _counters(
        "steps_dropped",
        "Steps dropped together with their chunks.",
        "reason",
        _known(books.dropped, BOOKS_DROP_REASONS),
    )
    yield counter("steps_ghost", "Steps of opponents that are not trained; outside the books.", books.ghost)


def _chunks(now: ActorSnapshot) -> Iterable[Metric]:
    rollout, connection = now.rollout, now.connection
    both = {reason: number + connection.chunks_dropped[reason] for reason, number in rollout.chunks_dropped.items()}
    yield counter("chunks_built", "Chunks made.", rollout.chunks_built)
    yield counter("chunks_sent", "Chunks written to a stream, including those sent again.", connection.chunks_sent)
    yield counter("chunks_acked", "Chunks that the learner settled.", connection.chunks_acked)
    yield _counters("chunks_dropped", "Chunks dropped.", "reason", both)
    yield _gauge("chunks_unacked", "Chunks kept until they are acked.", now.chunks_unacked)
    yield _gauge("spooled_bytes", "Encoded size of the spooled chunks, at most --outage-bytes.", now.spooled_bytes)
    yield counter("sent_bytes", "Encoded size of the chunks sent.", connection.sent_bytes)
    yield histogram("ack_round_trip_seconds", "Time from writing a chunk to its ack.", connection.round_trip_seconds)
    rejected = _known(now.rejected, REJECT_REASONS)
    yield _counters("rejected_steps", "Steps that the learner refused in its acks.", "reason", rejected)


def _connection(now: ActorSnapshot) -> Iterable[Metric]:
    yield _gauge("credit_steps", "Steps that may be taken before more credit is needed.", now.credit_steps)
    held = {reason: reason in now.held for reason in HOLD_REASONS}
    yield gauges("held", "1 while a hold of the learner keeps this actor waiting.", "reason", held)
    yield _counters("reconnects", "Broken connections and failed attempts.", "reason", now.connection.reconnects)
    streams = {"upload": now.is_uploading, "policy": now.is_subscribed}
    yield gauges("connected", "1 while the stream is open.", "stream", streams)


def _policies(now: ActorSnapshot) -> Iterable[Metric]:
    rollout, connection = now.rollout, now.connection
    outcomes = {
        "ok": rollout.swaps,
        "bad_digest": connection.policies_bad,
        "load_failed": connection.policies_unusable,
        "superseded": connection.policies_superseded,
    }
    yield _gauge("policy_version", "Version in use; 0 for the untrained one, and before the first.", now.policy_version)
    yield _counters(
        "policy_swaps",
        "Received policies; superseded: a newer one came first; load_failed: it fails, or its actions are not finite.",
        "outcome",
        outcomes,
    )
    yield histogram(
        "policy_fetch_seconds",
        "Time from a policy's header until the policy is ready to act.",
        connection.policy_fetch_seconds,
    )
    yield _gauge(
        "last_policy_timestamp_seconds", "When the version in use began to act; 0 before the first.", rollout.swapped_at
    )


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    """Returns a counter metric of an actor."""
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Returns a metric of an actor with a gauge for each value of a label."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=[label])
    for word, value in values.items():
        family.add_metric([word], float(value))
    return family


def _counters(name: str, text: str, label: str, counts: Mapping[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(PREFIX + name, text, labels=[label])
    for word, value in counts.items():
        family.add_metric([word], value)
    return family


def histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    """Returns a histogram metric of an actor."""
    counts, total = list(found.counts), found.total
    bounds = [str(floatToGoString(bound)) for bound in (*found.bounds, math.inf)]  # type: ignore[no-untyped-call]
    buckets = list(zip(bounds, itertools.accumulate(counts), strict=True))
    return HistogramMetricFamily(PREFIX + name, text, buckets=buckets, sum_value=total)


def _known(found: Mapping[str, int], words: tuple[str, ...]) -> dict[str, int]:
    """Returns the counts of all known words, and the sum of all others under `OTHER`."""
    counts = dict.fromkeys(words, 0)
    for word, number in found.items():
        counts[word if word in counts else OTHER] += number
    return counts
