"""A TCP proxy that makes the way between an actor and its learner long, and opens it up again, while both go on."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Self


class SlowLink:
    """Listens in place of a learner.

    Args:
        address: of the learner, host:port.

    Attributes:
        delay_seconds: what enters from now on leaves so much later, in either direction.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.delay_seconds = 0.0
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        """Listens."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for each in self._sockets:
            _close(each)

    @property
    def address(self) -> str:
        """Where actors connect."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
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
    _close(target)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
