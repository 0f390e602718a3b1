"""Metrics of gRPC methods, under the names of go-grpc-prometheus, so that public dashboards and alerts fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import grpc
from prometheus_client import Counter, Histogram
from prometheus_client.registry import CollectorRegistry

from learner.observe.metrics.values import CALL_SECONDS

UNARY: Final = "unary"
SERVER_STREAM: Final = "server_stream"
CLIENT_STREAM: Final = "client_stream"
BIDI_STREAM: Final = "bidi_stream"
_LABELS: Final = ("grpc_type", "grpc_service", "grpc_method")


def code_name(code: grpc.StatusCode) -> str:
    """Returns a code as Go writes it: ``InvalidArgument`` for INVALID_ARGUMENT."""
    if code is grpc.StatusCode.OK:
        return "OK"
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "".join(part.capitalize() for part in code.name.split("_"))


class CallMetrics:
    """The series of one method.

    Attributes:
        started: calls begun.
        received: messages from the client.
        sent: messages to the client.
    """

    __slots__ = ("_handled", "_seconds", "received", "sent", "started")

    def __init__(
        self,
        started: Counter,
        received: Counter,
        sent: Counter,
        handled: dict[grpc.StatusCode, Counter],
        seconds: Histogram | None,
    ) -> None:
        self.started = started
        self.received = received
        self.sent = sent
        self._handled = handled
        self._seconds = seconds

    def handled(self, code: grpc.StatusCode, seconds: float) -> None:
        """Counts a call that has ended; how long it took only if it was unary: a stream lasts as long as its actor."""
        self._handled[code].inc()
        if self._seconds is not None:
            self._seconds.observe(seconds)


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
        self._calls: dict[tuple[str, str], CallMetrics] = {}

    def declare(self, kind: str, service: str, methods: Iterable[str]) -> None:
        """Makes all series of methods, at zero.

        Args:
            kind: one of the constants of this module.
            service: full name.
            methods: short names.
        """
        for method in methods:
            labels = (kind, service, method)
            self._calls[service, method] = CallMetrics(
                self._started.labels(*labels),
                self._received.labels(*labels),
                self._sent.labels(*labels),
                {code: self._handled.labels(*labels, code_name(code)) for code in grpc.StatusCode},
                self._seconds.labels(*labels) if kind == UNARY else None,
            )

    def of(self, path: str) -> CallMetrics | None:
        """Returns the series of a method ``/service/method``; None for one that was not declared."""
        service, _, method = path.removeprefix("/").partition("/")
        return self._calls.get((service, method))
