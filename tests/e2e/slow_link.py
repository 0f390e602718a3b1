"""A TCP proxy that adds and removes latency between an actor and its learner."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress

from tests.tcp_proxy import TcpProxy, close


class SlowLink(TcpProxy):
    """Listens in place of a learner.

    Args:
        address: Of the learner, host:port.

    Attributes:
        delay_seconds: What enters from now on leaves so much later, in either direction.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        super().__init__(host, int(port))
        self.delay_seconds = 0.0

    def connect(self, client: socket.socket, server: socket.socket) -> None:
        """Forwards each direction through a queue."""
        for source, target in ((client, server), (server, client)):
            way: queue.Queue[tuple[float, bytes]] = queue.Queue()
            threading.Thread(target=self._take, args=(source, way), daemon=True).start()
            threading.Thread(target=_give, args=(way, target), daemon=True).start()

    def _take(self, source: socket.socket, way: queue.Queue[tuple[float, bytes]]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                way.put((time.monotonic() + self.delay_seconds, data))
        way.put((time.monotonic() + self.delay_seconds, b""))


def _give(way: queue.Queue[tuple[float, bytes]], target: socket.socket) -> None:
    with suppress(OSError):
        while True:
            due, data = way.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                break
            target.sendall(data)
    close(target)
