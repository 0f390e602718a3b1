"""All metrics of a learner, in parts that are passed to the code that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import grpc
from prometheus_client import Counter, Gauge, GCCollector, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry
from rollcast.errors import Unexpected

from learner.service.metrics.behaviors import HoldClock
from learner.service.metrics.state import MetricsSnapshot, StateCollector
from learner.shared.observe.values import (
    ACK_SECONDS,
    BOUNDS,
    CALL_SECONDS,
    CHUNK_BYTES,
    DECLARE_OUTCOMES,
    EPISODE_REASONS,
    EPISODE_RETURN,
    ERROR_REASONS,
    INTERNAL,
    LOOP_LAG_SECONDS,
    OPEN_OUTCOMES,
    OTHER,
    PREFIX,
    REJECT_REASONS,
    SEND_OUTCOMES,
)
from learner.shared.platform import usage_with_children

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_KINDS: Final = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}
"""Call types, by whether requests and responses are streams."""
_LABELS: Final = ("grpc_type", "grpc_service", "grpc_method")


def code_name(code: grpc.StatusCode) -> str:
    """Returns a code in Go's notation: ``InvalidArgument`` for INVALID_ARGUMENT."""
    if code is grpc.StatusCode.OK:
        return "OK"
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "".join(part.capitalize() for part in code.name.split("_"))


@dataclass(frozen=True, slots=True)
class CallMetrics:
    """The series of one method.

    Attributes:
        started: Calls begun.
        received: Messages from the client.
        sent: Messages to the client.
        codes: Calls ended, by status.
        seconds: Seconds to answer; None for streams, which last as long as their actor.
    """

    started: Counter
    received: Counter
    sent: Counter
    codes: Mapping[grpc.StatusCode, Counter]
    seconds: Histogram | None

    def handled(self, code: grpc.StatusCode, seconds: float) -> None:
        """Counts a call that has ended."""
        self.codes[code].inc()
        if self.seconds is not None:
            self.seconds.observe(seconds)


class ServerCallMetrics:
    """The metrics of all methods of a server.

    Args:
        registry: Registry of the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._started = Counter("grpc_server_started", "Calls begun.", _LABELS, registry=registry)
        self._received = Counter("grpc_server_msg_received", "Messages from clients.", _LABELS, registry=registry)
        self._sent = Counter("grpc_server_msg_sent", "Messages to clients.", _LABELS, registry=registry)
        self._handled = Counter("grpc_server_handled", "Calls ended.", (*_LABELS, "grpc_code"), registry=registry)
        self._seconds = Histogram(
            "grpc_server_handling_seconds",
            "Time to answer; unary methods only, because a stream lasts as long as its actor.",
            _LABELS,
            buckets=CALL_SECONDS,
            registry=registry,
        )
        self._bounds = _by(
            registry, "bounds", "Requests refused or delayed because they cost too much.", "bound", BOUNDS
        )
        self._calls: dict[str, CallMetrics] = {}
        spare = Counter("undeclared", "Calls of undeclared methods; not exported.", registry=None)
        self._undeclared = CallMetrics(spare, spare, spare, dict.fromkeys(grpc.StatusCode, spare), None)

    def declare(self, service: str, method: str, *, streams: tuple[bool, bool]) -> None:
        """Creates all series of a method, at zero.

        Args:
            service: Full name.
            method: Short name.
            streams: Whether requests and responses are streams.
        """
        labels = (_KINDS[streams], service, method)
        self._calls[f"/{service}/{method}"] = CallMetrics(
            self._started.labels(*labels),
            self._received.labels(*labels),
            self._sent.labels(*labels),
            {code: self._handled.labels(*labels, code_name(code)) for code in grpc.StatusCode},
            None if any(streams) else self._seconds.labels(*labels),
        )

    def bounded(self, bound: str) -> None:
        """Counts a request that was refused or delayed by one of `BOUNDS`."""
        self._bounds[bound].inc()

    def of(self, path: str) -> CallMetrics:
        """Returns the series of a method ``/service/method``; for an undeclared one, series that are not exported."""
        return self._calls.get(path, self._undeclared)


class SessionMetrics:
    """Metrics of openings, declarations and ends of sessions.

    Attributes:
        opened: Counters by outcome: ok, resumed, fenced, full, draining, refused.
        declared: Counters by outcome: ok, refused.
        expired: Leases that have expired.
        closed: Sessions that their actors ended.
        quarantines: Times that an actor was shut out for faults of form.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.opened = _by(registry, "sessions_opened", "Attempts to open a session.", "outcome", OPEN_OUTCOMES)
        self.declared = _by(registry, "declarations", "Declarations of behaviors.", "outcome", DECLARE_OUTCOMES)
        self.expired = _counter(
            registry, "sessions_expired", "Sessions whose lease ran out; their actors are away then, and may return."
        )
        self.closed = _counter(registry, "sessions_closed", "Sessions that their actors ended.")
        self.quarantines = _counter(
            registry, "quarantines", "Times that an actor was shut out, after three faults of form within ten minutes."
        )


class IntakeMetrics:
    """Metrics of chunks.

    Attributes:
        received: All chunks that arrived.
        duplicate: Chunks that were already settled.
        wire_bytes: Encoded size of all chunks.
        decoded_bytes: Memory of the settled chunks.
        chunk_bytes: Encoded sizes.
        ack_seconds: Seconds from arrival until the next ack covers the chunk.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.received = _counter(registry, "chunks_received", "Chunks received.")
        self.duplicate = _counter(
            registry, "chunks_duplicate", "Chunks that were already settled; they are acked again."
        )
        self.wire_bytes = _counter(registry, "received_wire_bytes", "Encoded size of all chunks.")
        self.decoded_bytes = _counter(
            registry, "received_decoded_bytes", "Memory of the settled chunks after unpacking."
        )
        self.chunk_bytes = _histogram(registry, "chunk_bytes", "Encoded sizes of chunks.", CHUNK_BYTES)
        self.ack_seconds = _histogram(
            registry, "ack_seconds", "Time from the arrival of a chunk to its settlement.", ACK_SECONDS
        )
        self._rejected = _by(
            registry,
            "chunks_rejected",
            "Chunks refused; opponent: rows of a behavior id that acts as an opponent.",
            "reason",
            REJECT_REASONS,
        )
        self._episodes = _by(
            registry,
            "episodes_refused",
            "Records of training episodes that do not count; without_rows: more than its session's rows can have.",
            "reason",
            EPISODE_REASONS,
        )

    def rejected(self, reason: str) -> None:
        """Counts a refused chunk."""
        self._rejected.get(reason, self._rejected[OTHER]).inc()

    def refused_episodes(self, reason: str, episodes: int) -> None:
        """Counts records of episodes that do not count, by one of `EPISODE_REASONS`."""
        self._episodes[reason].inc(episodes)


class PolicyMetrics:
    """Metrics of policies sent to actors.

    Attributes:
        sent_bytes: Bytes of all messages.
        sends: Versions by outcome: ok, replaced (by a newer one, before it was sent), aborted (the stream broke).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent_bytes = _counter(registry, "policy_sent_bytes", "Bytes of policies sent to all actors.")
        self.sends = _by(
            registry,
            "policy_sends",
            "Policies offered to actors; replaced: by a newer one before it was sent; aborted: the stream broke.",
            "outcome",
            SEND_OUTCOMES,
        )


class LearnerMetrics:
    """All metrics that the service counts or that `watch` reads. Two instances in one process are independent.

    Args:
        registry: Registry of all metrics; None creates one.
        return_buckets: Bounds of the histogram of returns.

    Attributes:
        registry: Registry of all metrics.
        sessions, intake, policies, holds, calls: Parts for the code that counts.
        loop_lag: Delay of the event loop.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, return_buckets: Iterable[float] = EPISODE_RETURN
    ) -> None:
        self.registry = registry = CollectorRegistry() if registry is None else registry
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self.sessions = SessionMetrics(registry)
        self.intake = IntakeMetrics(registry)
        self.policies = PolicyMetrics(registry)
        self.holds = HoldClock(registry)
        self.calls = ServerCallMetrics(registry)
        self.loop_lag = _histogram(
            registry, "event_loop_lag_seconds", "Delay of a timer of the service.", LOOP_LAG_SECONDS
        )
        self._errors = _by(registry, "errors", "Errors answered to actors and operators.", "reason", ERROR_REASONS)
        self._build = Gauge(
            f"{PREFIX}build_info", "The running software.", ("version", "revision", "protocol"), registry=registry
        )
        self._return_buckets = tuple(return_buckets)

    def error(self, reason: str) -> None:
        """Counts an error by its reason (of `rollcast.errors`); an unforeseen one counts as internal."""
        word = INTERNAL if reason == Unexpected.default_reason else reason.lower()
        self._errors.get(word, self._errors[INTERNAL]).inc()

    def set_build(self, version: str, revision: str, protocol: int) -> None:
        """Sets the version, revision and protocol of the learner."""
        self._build.labels(version, revision, str(protocol)).set(1)

    def watch(self, read: Callable[[], MetricsSnapshot]) -> None:
        """Adds the state, which is read at each scrape; from any thread."""
        self.registry.register(StateCollector(read, self._return_buckets))

    def watch_trainers(self, pid: int) -> None:
        """Adds what the process of the trainers uses."""
        self.registry.register(TrainersCollector(pid))

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(WithoutCreated(self.registry))


def _counter(registry: CollectorRegistry, name: str, text: str) -> Counter:
    return Counter(PREFIX + name, text, registry=registry)


def _by(registry: CollectorRegistry, name: str, text: str, label: str, values: Iterable[str]) -> Mapping[str, Counter]:
    family = Counter(PREFIX + name, text, (label,), registry=registry)
    return {value: family.labels(value) for value in values}


def _histogram(registry: CollectorRegistry, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(PREFIX + name, text, buckets=buckets, registry=registry)


class WithoutCreated(Collector):
    """A registry without the series `..._created` that the client library adds to each counter and histogram.

    The library's own switch applies to the whole process.

    Args:
        registry: The registry to read.
    """

    def __init__(self, registry: Collector) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics."""
        for metric in self._registry.collect():
            created = f"{metric.name}_created"
            metric.samples = [sample for sample in metric.samples if sample.name != created]
            yield metric


class TrainersCollector(Collector):
    """Reads what the trainers' process and its children use, where there is ``/proc``; the service has its own `process_*`.

    Args:
        pid: The process that the service has started: the trainers, or the launcher of all ranks.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most_seconds = 0.0

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics; without values once the process has ended."""
        seconds = CounterMetricFamily(
            f"{PREFIX}trainers_cpu_seconds",
            "Processor time of the trainers' process, or of all ranks on the learner's machine.",
        )
        memory = GaugeMetricFamily(
            f"{PREFIX}trainers_resident_memory_bytes",
            "Resident memory of the trainers' process, or of all ranks on the learner's machine.",
        )
        used = usage_with_children(self._pid)
        if used is not None:
            # A child that ends while its parent is read is in neither sum for a moment.
            self._most_seconds = max(self._most_seconds, used[0])
            seconds.add_metric((), self._most_seconds)
            memory.add_metric((), used[1])
        yield seconds
        yield memory
