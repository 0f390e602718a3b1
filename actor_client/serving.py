"""Serves an actor's metrics while it works: `/metrics` for Prometheus, `/healthz` for its supervisor."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import structlog

from actor_client.connection.link import LearnerLink
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import STUCK_SECONDS, Heartbeat
from actor_client.settings.commands import CommonSettings

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# A client that has not asked and taken its answer within so long is cut off, however often it sends a byte.
REQUEST_SECONDS: Final = 5.0
# Each is a thread of the actor; who comes when there are so many is hung up on.
MAX_CONNECTIONS: Final = 16
# How often the thread looks whether it shall end, and so how long closing takes.
CLOSE_SECONDS: Final = 0.2
_TEXT: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Answers GET in threads of its own until it is closed.

    Args:
        host: Where to listen.
        port: 0 = any free one.
        metrics: Makes the text of `/metrics`.
        is_well: What `/healthz` says: 200 or 503.
        may_move: Takes any free port if `port` is taken.

    Attributes:
        port: Where it listens.

    Raises:
        ActorError: It cannot listen there (PORT_IN_USE).
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        metrics: Callable[[], bytes],
        is_well: Callable[[], bool],
        may_move: bool = False,
    ) -> None:
        self._server = _listen(host, port, _handler(metrics, is_well), may_move=may_move)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(CLOSE_SECONDS,), name="rollcast-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops answering and gives the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(metrics: Callable[[], bytes], is_well: Callable[[], bool]) -> type[BaseHTTPRequestHandler]:
    """Returns the class that answers requests; the standard library wants one a server."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version = "rollcast"
        sys_version = ""

        def do_GET(self) -> None:
            """Answers."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE, metrics())
            elif path == "/healthz":
                good = is_well()
                status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, _TEXT, b"stepping\n" if good else b"stuck\n")
            else:
                self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics and /healthz\n")

        def log_message(self, *_: Any) -> None:
            """Says nothing: a line a scrape would drown the actor's own."""

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._due: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own, if there is room for one."""
        with self._lock:
            has_room = len(self._due) < MAX_CONNECTIONS
            if has_room:
                self._due[request] = time.monotonic() + REQUEST_SECONDS
        if has_room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection, and makes room."""
        with self._lock:
            self._due.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cuts off who took too long; comes every `CLOSE_SECONDS`, and after each new connection."""
        now = time.monotonic()
        with self._lock:  # so that none of them is closed meanwhile, and its number given to another
            for request in [each for each, due in self._due.items() if now >= due]:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)  # its thread notices, and ends

    def handle_error(self, *_: Any) -> None:
        """Says nothing of clients that went away; what a scrape lacks, Prometheus shows."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _listen(host: str, port: int, handler: type[BaseHTTPRequestHandler], *, may_move: bool) -> ThreadingHTTPServer:
    kind = _Server6 if ":" in host else _Server
    try:
        return kind((host, port), handler)
    except OSError as error:
        if may_move and port:
            return _listen(host, 0, handler, may_move=False)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise ActorError(
            ExitCode.PORT_IN_USE,
            f"cannot serve metrics on {shown} ({error.strerror or error}): choose another --metrics-address (port 0 "
            "takes any free port), or switch them off with --metrics-address off",
        ) from None


if TYPE_CHECKING:
    from prometheus_client.registry import Collector

REVISION_VARIABLE: Final = "ROLLCAST_REVISION"
"""Set by whoever builds an image; names the commit it was built from."""


@contextmanager
def served_metrics(
    settings: CommonSettings,
    link: LearnerLink,
    heartbeat: Heartbeat,
    env: str,
    more: Callable[[], "Collector"] | None = None,
) -> Iterator[None]:
    """Serves metrics until the block ends, unless they are switched off.

    Args:
        settings: Where to serve them.
        link: Whose numbers they are.
        heartbeat: Of the stepping thread.
        env: The environment's name, as it labels the build.
        more: Makes metrics of this command's own; not called where metrics are off.

    Raises:
        ActorError: The address that was asked for cannot be had.
    """
    endpoint = settings.metrics_endpoint
    if endpoint is None:
        yield
        return
    # Here, because who switches metrics off need not pay for the client library.
    from actor_client.metrics import ActorBuild, ActorMetrics  # noqa: PLC0415

    build = ActorBuild(version("rollcast"), os.environ.get(REVISION_VARIABLE, "unknown"), env)
    metrics = ActorMetrics(build, link.snapshot)
    if more is not None:
        metrics.registry.register(more())
    host, port = endpoint
    server = MetricsServer(
        host,
        port,
        metrics=metrics.exposition,
        is_well=lambda: heartbeat.age_seconds < STUCK_SECONDS,
        may_move=settings.may_move_metrics,
    )
    structlog.get_logger().info("metrics", url=f"http://{f'[{host}]' if ':' in host else host}:{server.port}/metrics")
    try:
        yield
    finally:
        server.close()
