"""All metrics of a learner, in parts that are handed to whoever causes the events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import grpc
from prometheus_client import Counter, Gauge, GCCollector, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry
from rollcast.errors import Unexpected

from learner.observe.metrics.behaviors import BehaviorFamilies, BehaviorMetrics, HoldClock
from learner.observe.metrics.state import MetricsSnapshot, StateCollector
from learner.observe.metrics.values import (
    ACK_SECONDS,
    CALL_SECONDS,
    CHECKPOINT_SECONDS,
    CHUNK_BYTES,
    DECLARE_OUTCOMES,
    EPISODE_RETURN,
    ERROR_REASONS,
    INTERNAL,
    LOOP_LAG_SECONDS,
    OPEN_OUTCOMES,
    OTHER,
    PREFIX,
    REJECT_REASONS,
    SAVE_OUTCOMES,
    SEND_OUTCOMES,
    WAIT_SECONDS,
)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_KINDS: Final = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}
"""By whether requests and responses are streams."""
_LABELS: Final = ("grpc_type", "grpc_service", "grpc_method")


def code_name(code: grpc.StatusCode) -> str:
    """Returns a code as Go writes it: ``InvalidArgument`` for INVALID_ARGUMENT."""
    if code is grpc.StatusCode.OK:
        return "OK"
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "".join(part.capitalize() for part in code.name.split("_"))


@dataclass(frozen=True, slots=True)
class CallMetrics:
    """The series of one method.

    Attributes:
        started: calls begun.
        received: messages from the client.
        sent: messages to the client.
        codes: calls ended, by status.
        seconds: time to answer; None for streams, which last as long as their actor.
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
    """All methods of a server.

    Args:
        registry: where they are read.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._started = Counter("grpc_server_started", "Calls begun.", _LABELS, registry=registry)
        self._received = Counter("grpc_server_msg_received", "Messages from clients.", _LABELS, registry=registry)
        self._sent = Counter("grpc_server_msg_sent", "Messages to clients.", _LABELS, registry=registry)
        self._handled = Counter("grpc_server_handled", "Calls ended.", (*_LABELS, "grpc_code"), registry=registry)
        self._seconds = Histogram(
            "grpc_server_handling_seconds", "Time to answer.", _LABELS, buckets=CALL_SECONDS, registry=registry
        )
        self._calls: dict[str, CallMetrics] = {}
        spare = Counter("undeclared", "Calls of methods that were not declared; read by no one.", registry=None)
        self._undeclared = CallMetrics(spare, spare, spare, dict.fromkeys(grpc.StatusCode, spare), None)

    def declare(self, service: str, method: str, *, streams: tuple[bool, bool]) -> None:
        """Makes all series of a method, at zero.

        Args:
            service: full name.
            method: short name.
            streams: whether requests and responses are streams.
        """
        labels = (_KINDS[streams], service, method)
        self._calls[f"/{service}/{method}"] = CallMetrics(
            self._started.labels(*labels),
            self._received.labels(*labels),
            self._sent.labels(*labels),
            {code: self._handled.labels(*labels, code_name(code)) for code in grpc.StatusCode},
            None if any(streams) else self._seconds.labels(*labels),
        )

    def of(self, path: str) -> CallMetrics:
        """Returns the series of a method ``/service/method``; of one that was not declared, series that are not read."""
        return self._calls.get(path, self._undeclared)


class SessionMetrics:
    """Openings, declarations and ends of sessions.

    Attributes:
        opened: by outcome: ok, resumed, fenced, full, draining, refused.
        declared: by outcome: ok, refused.
        expired: leases that ran out.
        closed: sessions that their actors ended.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.opened = _by(registry, "sessions_opened", "Attempts to open a session.", "outcome", OPEN_OUTCOMES)
        self.declared = _by(registry, "declarations", "Declarations of behaviors.", "outcome", DECLARE_OUTCOMES)
        self.expired = _counter(registry, "sessions_expired", "Sessions whose lease ran out.")
        self.closed = _counter(registry, "sessions_closed", "Sessions that their actors ended.")


class IntakeMetrics:
    """Chunks.

    Attributes:
        received: chunks that arrived, all of them.
        duplicate: those that had been settled before.
        wire_bytes: encoded size of all chunks.
        decoded_bytes: memory of the settled ones.
        chunk_bytes: encoded sizes.
        ack_seconds: from arrival to the moment from which the next ack covers it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.received = _counter(registry, "chunks_received", "Chunks that arrived.")
        self.duplicate = _counter(registry, "chunks_duplicate", "Chunks that had been settled before.")
        self.wire_bytes = _counter(registry, "received_wire_bytes", "Encoded size of all chunks.")
        self.decoded_bytes = _counter(registry, "received_decoded_bytes", "Memory of all settled chunks.")
        self.chunk_bytes = _histogram(registry, "chunk_bytes", "Encoded sizes of chunks.", CHUNK_BYTES)
        self.ack_seconds = _histogram(registry, "ack_seconds", "From arrival to settlement.", ACK_SECONDS)
        self._rejected = _by(registry, "chunks_rejected", "Chunks that were refused.", "reason", REJECT_REASONS)

    def rejected(self, reason: str) -> None:
        """Counts a chunk that was refused."""
        self._rejected.get(reason, self._rejected[OTHER]).inc()


class PolicyMetrics:
    """Policies on their way to actors.

    Attributes:
        sent_bytes: of all messages.
        sends: versions by outcome: ok, replaced (by a newer one, before it was sent), aborted (the stream broke).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent_bytes = _counter(registry, "policy_sent_bytes", "Bytes of policies sent to all actors.")
        self.sends = _by(registry, "policy_sends", "Policies offered to actors.", "outcome", SEND_OUTCOMES)


class CheckpointMetrics:
    """Checkpoints: run states and models.

    Attributes:
        seconds: how long writing one took.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = _histogram(registry, "checkpoint_seconds", "Time to write a checkpoint.", CHECKPOINT_SECONDS)
        self._outcomes = _by(registry, "checkpoints", "Checkpoints written.", "outcome", SAVE_OUTCOMES)
        self._last = Gauge(
            f"{PREFIX}last_checkpoint_timestamp_seconds", "When the last run state was written.", registry=registry
        )
        self._last.set(time.time())  # so that the age of it is that of the oldest progress that a crash could cost

    def note_saved(self, seconds: float, *, is_run_state: bool) -> None:
        """Counts a checkpoint that was written."""
        self._outcomes["ok"].inc()
        self.seconds.observe(seconds)
        if is_run_state:
            self._last.set(time.time())

    def note_failed(self) -> None:
        """Counts a checkpoint that could not be written."""
        self._outcomes["failed"].inc()


class LearnerMetrics:
    """Everything that a learner counts. Two in one process do not meet.

    Args:
        registry: where all is read; one of its own if None.
        return_buckets: bounds of the histogram of returns.

    Attributes:
        registry: where all is read.
        sessions, intake, policies, checkpoints, holds, calls: the parts.
        loop_lag: how much too late the event loop was.
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
        self.checkpoints = CheckpointMetrics(registry)
        self.holds = HoldClock(registry)
        self.calls = ServerCallMetrics(registry)
        self.loop_lag = _histogram(registry, "event_loop_lag_seconds", "How late a timer rang.", LOOP_LAG_SECONDS)
        self._writer_failures = Counter(
            f"{PREFIX}stats_writer_failures", "Failures to write statistics.", ("writer",), registry=registry
        )
        self._errors = _by(registry, "errors", "Errors answered to actors and operators.", "reason", ERROR_REASONS)
        self._build = Gauge(f"{PREFIX}build_info", "What runs.", ("version", "revision", "protocol"), registry=registry)
        queue_wait = _histogram(registry, "queue_wait_seconds", "From settlement to the trainer.", WAIT_SECONDS)
        self._families = BehaviorFamilies(registry, tuple(return_buckets), self.holds, queue_wait)
        self._behaviors: dict[str, BehaviorMetrics] = {}

    def behavior(self, name: str) -> BehaviorMetrics:
        """Returns the part of one behavior; the first call makes its series."""
        found = self._behaviors.get(name)
        if found is None:
            found = self._behaviors.setdefault(name, BehaviorMetrics(self._families, name))
        return found

    def declare_stats_writers(self, writers: Iterable[object]) -> None:
        """Makes the series of the writers that a run has."""
        for writer in writers:
            self._writer_failures.labels(_writer_name(writer))

    def stats_writer_failed(self, writer: object) -> None:
        """Counts a failure of a writer."""
        self._writer_failures.labels(_writer_name(writer)).inc()

    def last_update(self, name: str) -> Mapping[str, float]:
        """Returns what the last update of a behavior came to, by the names of `learner.observe.history.COLUMNS`."""
        part = self._behaviors.get(name)
        losses = None if part is None else part.losses
        if losses is None:
            return {}
        return {
            "loss": losses.loss,
            "policy_loss": losses.policy,
            "value_loss": losses.value,
            "entropy": losses.entropy_nats,
            "approx_kl": losses.approx_kl,
        }

    def error(self, reason: str) -> None:
        """Counts an error by its reason (of `rollcast.errors`); one that nobody foresaw counts as internal."""
        word = INTERNAL if reason == Unexpected.default_reason else reason.lower()
        self._errors.get(word, self._errors[INTERNAL]).inc()

    def set_build(self, version: str, revision: str, protocol: int) -> None:
        """Says what runs."""
        self._build.labels(version, revision, str(protocol)).set(1)

    def watch(self, read: Callable[[], MetricsSnapshot]) -> None:
        """Adds the state, which is read anew at each scrape; from any thread."""
        self.registry.register(StateCollector(read))

    def exposition(self) -> bytes:
        """Returns everything in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(WithoutCreated(self.registry))


def _writer_name(writer: object) -> str:
    """Returns ``tensorboard`` for a TensorBoardWriter. The run file names the writers, so there are few."""
    return type(writer).__name__.removesuffix("Writer").lower()


def unobserved() -> BehaviorMetrics:
    """Returns a part that counts for nobody, for a trainer outside a learner."""
    return LearnerMetrics().behavior("")


def _counter(registry: CollectorRegistry, name: str, text: str) -> Counter:
    return Counter(PREFIX + name, text, registry=registry)


def _by(registry: CollectorRegistry, name: str, text: str, label: str, values: Iterable[str]) -> Mapping[str, Counter]:
    family = Counter(PREFIX + name, text, (label,), registry=registry)
    return {value: family.labels(value) for value in values}


def _histogram(registry: CollectorRegistry, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(PREFIX + name, text, buckets=buckets, registry=registry)


class WithoutCreated(Collector):
    """A registry without the series `..._created`, which the client library adds to each counter and histogram.

    The library's own switch for it is one for the whole process.

    Args:
        registry: what is read.
    """

    def __init__(self, registry: Collector) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics."""
        for metric in self._registry.collect():
            created = f"{metric.name}_created"
            metric.samples = [sample for sample in metric.samples if sample.name != created]
            yield metric
