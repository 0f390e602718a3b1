"""Bounds the connections of an HTTP port, so that neither idle nor slow clients occupy it, with TLS and without."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

HANDSHAKE_SECONDS: Final = 5.0
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 85\r\n"
    b"Retry-After: 5\r\nConnection: close\r\n\r\n"
    b'{"error":{"reason":"TOO_MANY_CONNECTIONS","message":"too many connections are open"}}'
)


class Connections:
    """Creates the protocols of new connections, and tracks which connections wait for a request of their client.

    A connection counts from its first packet to its end, the handshake of TLS included. At the limit a new one replaces the one that
    has waited longest among those of the host that has the most: a client that sends its request byte by byte counts as waiting. It is refused if all are being answered.

    Args:
        limit: Most connections at once.
        context: How to use TLS; None for plain text.
    """

    def __init__(self, limit: int, context: ssl.SSLContext | None = None) -> None:
        self._limit = limit
        self.context = context
        self._waits_since: dict[Connection, float] = {}
        self._handled: dict[asyncio.BaseProtocol, Connection] = {}

    @contextmanager
    def answering(self, handler: asyncio.BaseProtocol) -> Iterator[None]:
        """Records that a connection is being answered, and, after the block, that it waits again.

        Args:
            handler: What answers its requests.
        """
        connection = self._handled.get(handler)
        self._note(connection, math.inf)
        try:
            yield
        finally:
            self._note(connection, asyncio.get_running_loop().time())

    def admit(self, connection: Connection) -> bool:
        """Counts a new connection; returns False if there is no room for it."""
        if len(self._waits_since) >= self._limit and not self._make_room():
            return False
        self._waits_since[connection] = asyncio.get_running_loop().time()
        return True

    def begin(self, connection: Connection, handler: asyncio.Protocol) -> None:
        """Notes what answers the requests of a connection."""
        self._handled[handler] = connection

    def forget(self, connection: Connection) -> None:
        """Forgets a connection that has ended."""
        self._waits_since.pop(connection, None)
        if connection.handler is not None:
            self._handled.pop(connection.handler, None)

    def close(self) -> None:
        """Ends all connections."""
        for connection in list(self._waits_since):
            connection.abort()

    def _note(self, connection: Connection | None, since: float) -> None:
        if connection in self._waits_since:  # not one that was replaced meanwhile
            self._waits_since[connection] = since

    def _make_room(self) -> bool:
        """Ends a connection for a new one; returns False if all are being answered."""
        counts = Counter(each.host for each in self._waits_since)
        waiting = [each for each, since in self._waits_since.items() if since < math.inf]
        if not waiting:
            return False
        longest = min(waiting, key=lambda each: (-counts[each.host], self._waits_since[each]))
        self.forget(longest)
        longest.abort()
        return True


class Connection(asyncio.Protocol):
    """Passes what arrives on to the protocol that answers it, after the handshake if there is TLS.

    Args:
        connections: All connections.
        server: Creates what answers, such as aiohttp's protocol.

    Attributes:
        host: Address of the client.
        handler: What answers; None before the handshake.
    """

    def __init__(self, connections: Connections, server: Callable[[], asyncio.Protocol]) -> None:
        self.host = ""
        self.handler: asyncio.Protocol | None = None
        self._connections = connections
        self._server = server
        self._plain: asyncio.Transport | None = None
        self._early = b""
        self._securing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins, or refuses the connection: in plain text with an answer, without reading the request."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("no stream")
        self._plain, context = transport, self._connections.context
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._connections.admit(self):
            if context is None:
                transport.write(_FULL)
                transport.close()
            else:
                transport.abort()
        elif context is None:
            self._begin(transport)
        else:
            transport.pause_reading()  # until what reads it is TLS
            self._securing = asyncio.create_task(self._secure(transport, context))

    def data_received(self, data: bytes) -> None:
        """Passes data on; what came with the end of a handshake waits for the next iteration of the loop."""
        if self.handler is None:
            self._early += data
        else:
            self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        """Passes the end of the client's side on."""
        if self.handler is not None:
            self.handler.eof_received()
        return None

    def pause_writing(self) -> None:
        """Passes on that the client does not read."""
        if self.handler is not None:
            self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Passes on that the client reads again."""
        if self.handler is not None:
            self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Passes the end on."""
        self._connections.forget(self)
        if self.handler is not None:
            self.handler.connection_lost(exc)

    def abort(self) -> None:
        """Ends the connection at once, in whichever state; drops unread data."""
        if self._plain is not None:
            self._plain.abort()

    async def _secure(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
            )
        except OSError:  # of TLS, too: the client's fault, which must not fill the log
            secure = None
        if secure is None:
            self._connections.forget(self)
            transport.abort()
        else:
            self._begin(secure)

    def _begin(self, transport: asyncio.Transport) -> None:
        self.handler = self._server()
        self._connections.begin(self, self.handler)
        self.handler.connection_made(transport)
        if self._early:
            self.handler.data_received(self._early)
            self._early = b""
