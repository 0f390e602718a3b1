"""A listener that forwards its clients to a server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class TcpProxy:
    """Listens on a free port for a block; subclasses decide how bytes are forwarded.

    Args:
        host: Of the server.
        port: Of the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for each in self._sockets:
            close(each)

    @property
    def address(self) -> str:
        """Returns where clients connect."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def connect(self, client: socket.socket, server: socket.socket) -> None:
        """Forwards bytes between a client and the server in threads.

        Raises:
            NotImplementedError: A subclass does it.
        """
        raise NotImplementedError

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                self.connect(client, server)


def close(each: socket.socket) -> None:
    """Ends a connection, if it has not ended already."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
