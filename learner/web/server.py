"""Starts and stops the learner's HTTP port."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

from learner.common.exits import ExitCode, UserError
from learner.common.platform import reuse_address
from learner.identity.setup import Identity
from learner.observe.address import page_url
from learner.settings.addresses import is_loopback, split_address
from learner.web.guard import MAX_BODY_BYTES, make_guard, without_expectations
from learner.web.hooks import WebHooks
from learner.web.operator_token import OperatorToken
from learner.web.routes import Routes, load_page

MAX_CONNECTIONS: Final = 128
IDLE_SECONDS: Final = 30.0
"""Seconds after which a connection without a complete request is closed."""
PATIENCE_SECONDS: Final = 1.0
"""At `MAX_CONNECTIONS`, a connection without a request for this many seconds gives its place to a new one."""
MAX_LINE_BYTES: Final = 4096
MAX_HEADERS: Final = 64
STOP_SECONDS: Final = 1.0
FAREWELL_SECONDS: Final = 1.5
BACKLOG: Final = 64
HANDSHAKE_SECONDS: Final = 5.0

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 85\r\n"
    b"Retry-After: 5\r\nConnection: close\r\n\r\n"
    b'{"error":{"reason":"TOO_MANY_CONNECTIONS","message":"too many connections are open"}}'
)

log = structlog.get_logger(__name__)


class Connections:
    """Creates the protocols of new connections, and tracks which connections wait for a request of their client.

    At the limit a new connection replaces the one that has waited longest, so that neither idle nor slow clients can
    occupy the port: a client that sends its request byte by byte counts as waiting.

    Args:
        limit: Most connections at once.
        patience_seconds: Time that a client may always take for its request, in seconds.
    """

    def __init__(self, limit: int, patience_seconds: float) -> None:
        self._limit = limit
        self._patience_seconds = patience_seconds
        self._since: dict[RequestHandler, float] = {}
        # The server forgets the transport of a connection that it closes, even if the client has not read everything.
        self._transports: dict[RequestHandler, asyncio.Transport] = {}
        self._coming = self._leaving = 0

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Records that a connection is being answered, and then that it waits again."""
        self._since[request.protocol] = math.inf
        try:
            return await handler(request)
        finally:
            self._since[request.protocol] = asyncio.get_running_loop().time()

    def accept(self, server: Server) -> RequestHandler | Refusal:
        """Returns the protocol of a new connection; for ``create_server``."""
        loop = asyncio.get_running_loop()
        present = frozenset(server.connections)
        self._since = {each: since for each, since in self._since.items() if each in present}
        self._transports = {each: transport for each, transport in self._transports.items() if each in present}
        count = len(present) + self._coming - self._leaving
        if count >= self._limit and not self._make_room(loop):
            return Refusal()
        # Many connections may be accepted at once. The loop tells a protocol of its connection in its next iteration,
        # right after `_has_come`; until then the connection is counted here.
        self._coming += 1
        protocol = server()
        loop.call_soon(self._has_come, protocol, loop)
        return protocol

    def _has_come(self, protocol: RequestHandler, loop: asyncio.AbstractEventLoop) -> None:
        self._coming -= 1
        self._since[protocol] = loop.time()
        loop.call_soon(self._has_begun, protocol)

    def _has_begun(self, protocol: RequestHandler) -> None:
        if isinstance(protocol.transport, asyncio.Transport):
            self._transports[protocol] = protocol.transport

    def _make_room(self, loop: asyncio.AbstractEventLoop) -> bool:
        longest = min(self._since, key=lambda each: self._since[each], default=None)
        if longest is None or loop.time() - self._since[longest] < self._patience_seconds:
            return False
        transport = self._transports.get(longest)
        if transport is None:
            return False
        del self._since[longest]
        transport.abort()  # drops unread data, so that the connection is gone in the loop's next iteration
        self._leaving += 1
        loop.call_soon(self._has_left)
        return True

    def _has_left(self) -> None:
        self._leaving -= 1


class Refusal(asyncio.Protocol):
    """Answers that the port is full, and closes the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers at once, without reading the request."""
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(_FULL)
        transport.close()


class WebServer:
    """Serves the page, the metrics and the operators on the running event loop until it is stopped.

    Args:
        hooks: The learner.
        address: ``host:port``; port 0 takes any free port.
        token: The operators' token.
        identity: The learner's certificate, and the tokens of viewers.
        falls_back: Whether to take a free port if the port is in use; for default addresses.
        hosts: Further host names that requests may be for; see `make_guard`.
        max_connections: Most connections at once; more are refused.
        idle_seconds: See `IDLE_SECONDS`.
        patience_seconds: See `PATIENCE_SECONDS`.

    Attributes:
        address: Bound address, once started.
    """

    def __init__(
        self,
        hooks: WebHooks,
        *,
        address: str,
        token: OperatorToken,
        identity: Identity | None = None,
        falls_back: bool = False,
        hosts: tuple[str, ...] = (),
        max_connections: int = MAX_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.address = address
        self._hooks = hooks
        self._token = token
        self._identity = identity or Identity()
        self._falls_back = falls_back
        self._hosts = hosts
        self._max_connections = max_connections
        self._idle_seconds = idle_seconds
        self._patience_seconds = patience_seconds
        self._routes: Routes | None = None
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """URL of the page for a browser on this machine."""
        return page_url(self.address, tls=self._identity.security is not None)

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            UserError: The address is unavailable (PORT_IN_USE).
        """
        listening = self._listen()
        connections = Connections(self._max_connections, self._patience_seconds)
        guard = make_guard(is_loopback=is_loopback(self.address), names=self._hosts)
        app = web.Application(middlewares=[connections.middleware, guard], client_max_size=MAX_BODY_BYTES)
        access = self._identity.access
        readers = access if access.identifies_actors else None
        self._routes = Routes(self._hooks, self._token, load_page(), readers, self._identity.audit)
        self._routes.add_to(app)
        quiet = logging.Logger("aiohttp")  # noqa: LOG001 - of its own, on purpose: strangers must not fill our log
        quiet.addHandler(logging.NullHandler())
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=quiet,
            keepalive_timeout=self._idle_seconds,
            lingering_time=1.0,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
            shutdown_timeout=STOP_SECONDS,
        )
        await self._runner.setup()
        server = self._runner.server
        if server is None:
            raise RuntimeError("aiohttp created no server")
        server.request_handler = without_expectations(server.request_handler)
        security = self._identity.security
        context = None if security is None else security.http_context(require_certificate=not access.has_tokens)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: connections.accept(server),
            sock=listening,
            backlog=BACKLOG,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=None if context is None else HANDSHAKE_SECONDS,
        )
        self.address = _bound(self.address, listening)

    async def farewell(self, *, is_over: bool = False) -> None:
        """Lets an open page read the final status, and Prometheus that the run is over.

        Waits slightly longer than the page's polling interval, and twice as long as Prometheus' at most.
        """
        if self._routes is not None:
            await self._routes.farewell(FAREWELL_SECONDS, is_over=is_over)

    async def stop(self) -> None:
        """Closes everything; answers in progress get a second to finish. Safe to call before `start` and repeatedly."""
        server, self._server = self._server, None
        runner, self._runner = self._runner, None
        if server is not None:
            server.close()
        if runner is not None:
            await runner.cleanup()
        if self._routes is not None:
            self._routes.close()

    def _listen(self) -> socket.socket:
        try:
            return bind(self.address)
        except OSError as error:
            if not self._falls_back or error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise _cannot_listen(self.address, error) from None
        host, port = split_address(self.address)
        free = f"[{host}]:0" if ":" in host else f"{host}:0"
        try:
            found = bind(free)
        except OSError as error:
            raise _cannot_listen(free, error) from None
        log.warning("http_port_taken", port=port, taken_instead=found.getsockname()[1], setting="rollcast.http_address")
        return found


def bind(address: str) -> socket.socket:
    """Returns a socket bound to the first address of a name.

    Raises:
        OSError: The name has no address, or the address is in use.
    """
    host, port = split_address(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        reuse_address(bound)  # old connections of an earlier learner do not matter
        bound.setblocking(False)
        bound.bind(where)
        bound.listen(BACKLOG)  # two sockets may be bound to one port, but only one can listen
    except OSError:
        bound.close()
        raise
    return bound


def require_free_http(address: str) -> None:
    """Checks that an address is available before a run folder is created.

    Raises:
        UserError: The address is unavailable (PORT_IN_USE).
    """
    try:
        bind(address).close()
    except OSError as error:
        raise _cannot_listen(address, error) from None


def _bound(address: str, listening: socket.socket) -> str:
    host, _ = split_address(address)
    port = listening.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _cannot_listen(address: str, error: OSError) -> UserError:
    return UserError(
        ExitCode.PORT_IN_USE,
        f"cannot serve the status page on {address}: {error.strerror or error}. Stop the program that listens there, "
        "or choose another address (rollcast.http_address; port 0 takes any free port), or turn the page off "
        "(rollcast.http: false)",
    )
