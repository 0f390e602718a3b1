"""Starts and stops the learner's HTTP port."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Final

import structlog
from aiohttp import web
from rollcast.addresses import listen_on, split_address
from rollcast.http_connections import Connection, Connections
from rollcast.http_hosts import AllowedHosts

from learner.service.identity.setup import Identity
from learner.service.web.guard import MAX_BODY_BYTES, make_guard, marked, without_expectations
from learner.service.web.hooks import WebHooks
from learner.service.web.operator_token import OperatorToken
from learner.service.web.routes import Routes, load_page
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.addresses import with_port

MAX_CONNECTIONS: Final = 128
IDLE_SECONDS: Final = 30.0
"""Seconds after which a connection without a complete request is closed."""
MAX_LINE_BYTES: Final = 4096
MAX_HEADERS: Final = 64
STOP_SECONDS: Final = 1.0
FAREWELL_SECONDS: Final = 1.5

log = structlog.get_logger(__name__)


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
    ) -> None:
        self.address = address
        self._hooks = hooks
        self._token = token
        self._identity = identity or Identity()
        self._falls_back = falls_back
        self._hosts = hosts
        self._max_connections = max_connections
        self._idle_seconds = idle_seconds
        self._routes: Routes | None = None
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._connections: Connections | None = None

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            UserError: The address is unavailable (PORT_IN_USE).
        """
        listening = self._listen()
        access, security = self._identity.access, self._identity.security
        context = None if security is None else security.http_context(require_certificate=not access.has_tokens)
        self._connections = connections = Connections(self._max_connections, context)
        hosts = AllowedHosts(self.address, self._hosts, setting="rollcast.http_hosts")
        guard = make_guard(hosts, count=self._hooks.count_error)
        app = web.Application(middlewares=[marked(connections), guard], client_max_size=MAX_BODY_BYTES)
        self._routes = Routes(self._hooks, self._token, load_page(), access, self._identity.audit)
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
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(connections, server), sock=listening
        )
        self.address = with_port(self.address, listening.getsockname()[1])

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
        if self._connections is not None:
            self._connections.close()  # also those amid a handshake
        if self._routes is not None:
            self._routes.close()

    def _listen(self) -> socket.socket:
        try:
            return listen_on(self.address)
        except OSError as error:
            if not self._falls_back or error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise _cannot_listen(self.address, error) from None
        free = with_port(self.address, 0)
        try:
            found = listen_on(free)
        except OSError as error:
            raise _cannot_listen(free, error) from None
        port = split_address(self.address)[1]
        log.warning("http_port_taken", port=port, taken_instead=found.getsockname()[1], setting="rollcast.http_address")
        return found


def require_free_http(address: str) -> None:
    """Checks that an address is available before a run folder is created.

    Raises:
        UserError: The address is unavailable (PORT_IN_USE).
    """
    try:
        listen_on(address).close()
    except OSError as error:
        raise _cannot_listen(address, error) from None


def _cannot_listen(address: str, error: OSError) -> UserError:
    return UserError(
        ExitCode.PORT_IN_USE,
        f"cannot serve the status page on {address}: {error.strerror or error}. Stop the program that listens there, "
        "or choose another address (rollcast.http_address; port 0 takes any free port), or turn the page off "
        "(rollcast.http: false)",
    )
