"""A TCP proxy that can drop the traffic of one connection without closing it, as a firewall does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.tcp_proxy import TcpProxy, close


class Pair:
    """The two sockets of a connection: to the client and to the server.

    Attributes:
        swallowing: What comes, an end included, goes nowhere; both sides believe the connection to be well.
        client_bytes: Came from the client so far.
    """

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.swallowing = False
        self.client_bytes = 0
        self.peer = "ipv4:{}:{}".format(*server.getsockname())  # as the server sees it
        self._sockets = client, server
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if source is self._sockets[0]:
                    self.client_bytes += len(data)
                if not self.swallowing:
                    target.sendall(data)
        if not self.swallowing:
            self.close()

    def close(self) -> None:
        """Ends both halves."""
        for half in self._sockets:
            close(half)


class Proxy(TcpProxy):
    """Listens in place of a server and forwards its connections.

    Attributes:
        pairs: All connections so far.
    """

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self.pairs: list[Pair] = []

    def pair_of(self, peer: str) -> Pair:
        """Returns the connection that the server knows under this name."""
        (found,) = [pair for pair in self.pairs if pair.peer == peer]
        return found

    def connect(self, client: socket.socket, server: socket.socket) -> None:
        """Forwards both directions of a connection."""
        self.pairs.append(Pair(client, server))
