"""Serves an actor's metrics while it works: `/metrics` for Prometheus, `/healthz` for its supervisor."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from rollcast.addresses import REUSES_ADDRESSES, join_address
from rollcast.auth import AUTHORIZATION, bearer
from rollcast.tls import IdentityError, read_token

from actor_client.connection.link import LearnerLink
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import STUCK_SECONDS, Heartbeat
from actor_client.settings.commands import CommonSettings

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Seconds a client has to send its request and take the answer; sending single bytes does not extend it.
REQUEST_SECONDS: Final = 5.0
# Most open connections, each of which has a thread of the actor; further ones are closed.
MAX_CONNECTIONS: Final = 16
# Interval at which the thread checks whether to end, and therefore the longest time that closing takes.
CLOSE_SECONDS: Final = 0.2
_TEXT: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Answers GET requests in its own threads until it is closed.

    Args:
        host: The address to listen on.
        port: The port; 0 = any free one.
        metrics: Returns the text of `/metrics`.
        is_well: Returns whether `/healthz` answers 200 or 503.
        may_move: Takes any free port if `port` is taken.
        token_file: File with the token that `/metrics` requires, read for each request; None requires none.

    Attributes:
        port: The listening port.

    Raises:
        ActorError: The port is in use, or the address cannot be used (PORT_IN_USE).
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        metrics: Callable[[], bytes],
        is_well: Callable[[], bool],
        may_move: bool = False,
        token_file: Path | None = None,
    ) -> None:
        self._server = _listen(host, port, _handler(metrics, is_well, token_file), may_move=may_move)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(CLOSE_SECONDS,), name="rollcast-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops answering and releases the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(
    metrics: Callable[[], bytes], is_well: Callable[[], bool], token_file: Path | None
) -> type[BaseHTTPRequestHandler]:
    """Returns the handler class; the standard library requires one per server."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version = "rollcast"
        sys_version = ""

        def do_GET(self) -> None:
            """Answers a request."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                if token_file is None or self._shows(token_file):
                    self._answer(HTTPStatus.OK, CONTENT_TYPE, metrics())
                else:
                    self._answer(HTTPStatus.UNAUTHORIZED, _TEXT, b"this needs the token of --metrics-token-file\n")
            elif path == "/healthz":
                good = is_well()
                status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, _TEXT, b"stepping\n" if good else b"stuck\n")
            else:
                self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics and /healthz\n")

        def log_message(self, *_: Any) -> None:
            """Logs nothing: a line per scrape would flood the actor's log."""

        def _shows(self, token_file: Path) -> bool:
            given = bearer(self.headers.get_all(AUTHORIZATION, []))
            try:
                return given is not None and secrets.compare_digest(given, read_token(token_file))
            except IdentityError:
                return False  # a mounted secret may be missing for a moment

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            if status is HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = REUSES_ADDRESSES
    allow_reuse_port = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._due: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a new thread, if there is room for one."""
        with self._lock:
            has_room = len(self._due) < MAX_CONNECTIONS
            if has_room:
                self._due[request] = time.monotonic() + REQUEST_SECONDS
        if has_room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection, and frees its place."""
        with self._lock:
            self._due.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Closes connections that took too long; called every `CLOSE_SECONDS`, and after each new connection."""
        now = time.monotonic()
        with self._lock:  # so that no socket is closed in the meantime and its number reused
            for request in [each for each, due in self._due.items() if now >= due]:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)  # its thread notices and ends

    def handle_error(self, *_: Any) -> None:
        """Ignores clients that disconnected; Prometheus reports failed scrapes."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _listen(host: str, port: int, handler: type[BaseHTTPRequestHandler], *, may_move: bool) -> ThreadingHTTPServer:
    kind = _Server6 if ":" in host else _Server
    try:
        return kind((host, port), handler)
    except OSError as error:
        if may_move and port:
            return _listen(host, 0, handler, may_move=False)
        raise ActorError(
            ExitCode.PORT_IN_USE,
            f"cannot serve metrics on {join_address(host, port)} ({error.strerror or error}): choose another --metrics-address (port 0 "
            "takes any free port), or switch them off with --metrics-address off",
        ) from None


if TYPE_CHECKING:
    from prometheus_client.registry import Collector

REVISION_VARIABLE: Final = "ROLLCAST_REVISION"
"""The variable with the commit that an image was built from."""


@contextmanager
def served_metrics(
    settings: CommonSettings,
    link: LearnerLink,
    heartbeat: Heartbeat,
    env: str,
    more: Callable[[], "Collector | None"] = lambda: None,
) -> Iterator[None]:
    """Serves metrics until the block ends, unless they are switched off.

    Args:
        settings: The settings, with the address of the metrics.
        link: The link whose numbers are served.
        heartbeat: Heartbeat of the stepping thread.
        env: The environment's name, a label of the build.
        more: Makes this command's own metrics, if it has any; not called if metrics are off.

    Raises:
        ActorError: The given address cannot be used.
    """
    endpoint = settings.metrics_endpoint
    if endpoint is None:
        yield
        return
    # Imported here, so that an actor without metrics does not load the client library.
    from actor_client.metrics import ActorBuild, ActorMetrics  # noqa: PLC0415

    build = ActorBuild(version("rollcast"), os.environ.get(REVISION_VARIABLE, "unknown"), env)
    metrics = ActorMetrics(build, link.snapshot)
    if (own := more()) is not None:
        metrics.registry.register(own)
    host, port = endpoint
    server = MetricsServer(
        host,
        port,
        metrics=metrics.exposition,
        is_well=lambda: heartbeat.age_seconds < STUCK_SECONDS,
        may_move=settings.may_move_metrics,
        token_file=settings.metrics_token_file,
    )
    structlog.get_logger().info("metrics", url=f"http://{join_address(host, server.port)}/metrics")
    try:
        yield
    finally:
        server.close()
