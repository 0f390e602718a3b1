"""Bounds the connections that have not introduced themselves yet, so that strangers cannot occupy an address."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from typing import Final

PATIENCE_SECONDS: Final = 1.0
"""Seconds that a connection always has for its introduction."""


class Entrance:
    """Knows the connections that introduce themselves, and ends those that take too long, however they send.

    At the limit, a new connection replaces the one that has taken longest among those of the host that has the most.

    Args:
        most: Most connections at once.
        seconds: After so long, `end_late` ends a connection.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._inside: dict[socket.socket, tuple[str, float]] = {}

    def enter(self, handle: socket.socket, host: str) -> None:
        """Gives a connection a place; waits at most `PATIENCE_SECONDS` for one. For one thread.

        Args:
            handle: The connection.
            host: Where it comes from.
        """
        while (seconds := self._until_room()) > 0.0:
            time.sleep(seconds)
        with self._lock:
            self._inside[handle] = host, time.monotonic()

    def leave(self, handle: socket.socket) -> None:
        """Forgets a connection that has introduced itself, or has ended."""
        with self._lock:
            self._inside.pop(handle, None)

    def end_late(self) -> None:
        """Ends the connections that have taken too long."""
        with self._lock:
            for handle, (_, since) in self._inside.items():
                if time.monotonic() - since > self._seconds:
                    shut(handle)

    def _until_room(self) -> float:
        """Returns the seconds until a connection may be replaced; 0 if there is room."""
        with self._lock:
            if len(self._inside) < self._most:
                return 0.0
            counts = Counter(host for host, _ in self._inside.values())
            handle, (_, since) = min(self._inside.items(), key=lambda item: (-counts[item[1][0]], item[1][1]))
            left = since + PATIENCE_SECONDS - time.monotonic()
            if left <= 0.0:
                del self._inside[handle]
                shut(handle)
            return max(0.0, left)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Returns a socket that listens at an IP address of this machine.

    Raises:
        OSError: It cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)


def shut(handle: socket.socket) -> None:
    """Ends a socket, at which whoever waits for it in another thread notices the end; it remains to be closed."""
    with contextlib.suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)
