"""A TCP proxy between actors and their learner, whose connections can be cut and stalled."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.tcp_proxy import TcpProxy, close


class CutProxy(TcpProxy):
    """Listens in place of a learner on loopback; where it is down, clients are refused.

    Args:
        port: Of the learner.
    """

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self.port = int(self.address.rpartition(":")[2])
        self._flows = threading.Event()
        self._flows.set()

    def __exit__(self, *error: object) -> None:
        self.flow()
        super().__exit__(*error)

    def cut(self) -> None:
        """Ends every connection."""
        while self._sockets:
            close(self._sockets.pop())

    def stall(self) -> None:
        """Forwards nothing, and keeps the connections, until `flow`."""
        self._flows.clear()

    def flow(self) -> None:
        """Forwards what was held back."""
        self._flows.set()

    def connect(self, client: socket.socket, server: socket.socket) -> None:
        """Forwards both directions of a connection."""
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._flows.wait()
                target.sendall(data)
        for each in (source, target):
            close(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    close(client)
                    continue
                self._sockets += [client, server]
                self.connect(client, server)
