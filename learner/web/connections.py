"""How many connections the HTTP port takes: a stranger who opens thousands must not use up the learner's files."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 85\r\n"
    b"Retry-After: 5\r\nConnection: close\r\n\r\n"
    b'{"error":{"reason":"TOO_MANY_CONNECTIONS","message":"too many connections are open"}}'
)


class Connections:
    """Makes the protocol of each new connection; to be given to ``create_server``.

    Args:
        server: makes those that are served.
        limit: how many of them there may be at once.
        loop: on which connections come.
    """

    def __init__(self, server: Server, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._limit = limit
        self._loop = loop
        self._coming = 0

    def __call__(self) -> RequestHandler | Refusal:
        """Returns the protocol of a new connection."""
        if len(self._server.connections) + self._coming >= self._limit:
            return Refusal()
        # Many connections may be accepted in one go, before the first of them is among those of the server. The loop
        # tells a protocol of its connection in its next round: until then it is counted here.
        self._coming += 1
        self._loop.call_soon(self._has_come)
        return self._server()

    def _has_come(self) -> None:
        self._coming -= 1


class Refusal(asyncio.Protocol):
    """Says that there is no room, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers at once, whatever would have been asked."""
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(_FULL)
        transport.close()
