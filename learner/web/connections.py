"""How many connections the HTTP port takes: a stranger who opens thousands must not use up the learner's files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 85\r\n"
    b"Retry-After: 5\r\nConnection: close\r\n\r\n"
    b'{"error":{"reason":"TOO_MANY_CONNECTIONS","message":"too many connections are open"}}'
)


class Waiting:
    """Which connections wait for a request of their client, and since when; the longest first.

    A client that sends its request byte by byte waits like one that is silent.
    """

    def __init__(self) -> None:
        self._since: dict[RequestHandler, float] = {}

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notes that a connection is being answered, and that it waits again."""
        self._since.pop(request.protocol, None)
        try:
            return await handler(request)
        finally:
            self.begins(request.protocol)

    def begins(self, connection: RequestHandler) -> None:
        """Notes that a connection waits from now on."""
        self._since.pop(connection, None)
        self._since[connection] = asyncio.get_running_loop().time()

    def __len__(self) -> int:
        """Returns how many are remembered, with those that have been closed since."""
        return len(self._since)

    def keep(self, open_now: Iterable[RequestHandler]) -> None:
        """Forgets all connections but those."""
        kept = set(open_now)
        self._since = {each: since for each, since in self._since.items() if each in kept}

    def take(self, seconds: float) -> RequestHandler | None:
        """Returns the connection that has waited longest, which counts no more; None if none has for `seconds`."""
        longest, since = next(iter(self._since.items()), (None, 0.0))
        if longest is None or asyncio.get_running_loop().time() - since < seconds:
            return None
        del self._since[longest]
        return longest


class Connections:
    """Makes the protocol of each new connection; to be given to ``create_server``.

    At the limit a new connection takes the place of the one that has waited longest for its client's request, so that
    neither idle clients nor slow ones can hold the port.

    Args:
        server: makes those that are served.
        limit: how many of them there may be at once.
        loop: on which connections come.
        waiting: of the same application.
        patience_seconds: so long a client may always take for its request.
    """

    def __init__(
        self,
        server: Server,
        limit: int,
        loop: asyncio.AbstractEventLoop,
        waiting: Waiting,
        patience_seconds: float,
    ) -> None:
        self._server = server
        self._limit = limit
        self._loop = loop
        self._waiting = waiting
        self._patience_seconds = patience_seconds
        self._coming = 0
        self._leaving = 0

    def __call__(self) -> RequestHandler | Refusal:
        """Returns the protocol of a new connection."""
        if self._count() >= self._limit and not self._make_room():
            return Refusal()
        # Many connections may be accepted in one go, before the first of them is among those of the server. The loop
        # tells a protocol of its connection in its next round: until then it is counted here.
        self._coming += 1
        protocol = self._server()
        self._loop.call_soon(self._has_come, protocol)
        return protocol

    def _count(self) -> int:
        return len(self._server.connections) + self._coming - self._leaving

    def _has_come(self, protocol: RequestHandler) -> None:
        self._coming -= 1
        if len(self._waiting) > 2 * self._limit:
            self._waiting.keep(self._server.connections)
        self._waiting.begins(protocol)

    def _make_room(self) -> bool:
        self._waiting.keep(self._server.connections)
        longest = self._waiting.take(self._patience_seconds)
        if longest is None or not isinstance(longest.transport, asyncio.Transport):
            return False
        longest.transport.abort()  # whatever it has not read yet, so that it is gone in the loop's next round
        self._leaving += 1
        self._loop.call_soon(self._has_left)
        return True

    def _has_left(self) -> None:
        self._leaving -= 1


class Refusal(asyncio.Protocol):
    """Says that there is no room, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers at once, whatever would have been asked."""
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(_FULL)
        transport.close()
