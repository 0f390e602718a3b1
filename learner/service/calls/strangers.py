"""Ends connections of clients that have not identified themselves, before they shut others out at the limit of connections."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from learner.link.entrance import shut

GRACE_SECONDS: Final = 3.0
"""Seconds that a client always has for its first accepted call."""
_DESCRIPTORS: Final = Path("/dev/fd")
_MAPPED: Final = "::ffff:"
Peer: TypeAlias = "tuple[str, int]"


class Strangers:
    """Knows the connections with an accepted call, and ends others while more than three quarters of the limit are open.

    gRPC ends no connection of a client whose calls are refused, and tells nobody which are open. So this looks among the sockets of
    this process. Where the system does not list them (Windows), it does nothing.

    Args:
        limit: Most connections at once.
        clock: Returns seconds that only grow.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = limit - limit // 4
        self._clock = clock
        self._lock = threading.Lock()
        self._known: set[Peer] = set()
        self._seen_since: dict[Peer, float] = {}

    def welcome(self, address: str) -> None:
        """Notes that a call of a connection was accepted.

        Args:
            address: Of the client, ``host:port``.
        """
        host, _, port = address.rpartition(":")
        if port.isdecimal():
            with self._lock:
                self._known.add((host.strip("[]"), int(port)))

    def end_some(self, port: int) -> int:
        """Ends connections that have had no accepted call, oldest first, of the host that has most; returns how many.

        Args:
            port: On which they have come.
        """
        if not _DESCRIPTORS.is_dir() or len(os.listdir(_DESCRIPTORS)) <= self._most:  # noqa: PTH208 - fewer objects
            self._seen_since.clear()
            return 0
        found = _connections(port)
        try:
            now, ended = self._clock(), 0
            self._seen_since = {peer: self._seen_since.get(peer, now) for peer in found}
            with self._lock:
                self._known &= found.keys()
                strangers = [peer for peer in found if peer not in self._known]
            counts = Counter(host for host, _ in strangers)
            for peer in sorted(strangers, key=lambda each: (-counts[each[0]], self._seen_since[each])):
                if len(found) - ended <= self._most:
                    break
                if now - self._seen_since[peer] >= GRACE_SECONDS:
                    shut(found[peer])  # which gRPC notices as its client's end
                    ended += 1
            return ended
        finally:
            for handle in found.values():
                handle.close()


def _connections(port: int) -> dict[Peer, socket.socket]:
    """Returns copies of the connections that have come on a port, by the address of the client."""
    found = {}
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - as above
        try:
            copy = os.dup(int(name))
        except OSError:  # closed meanwhile
            continue
        try:
            handle = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        peer = _peer(handle, port)
        if peer is None or peer in found:  # a copy of ours, under a number that was free again
            handle.close()
        else:
            found[peer] = handle
    return found


def _peer(handle: socket.socket, port: int) -> Peer | None:
    try:
        if handle.family not in {socket.AF_INET, socket.AF_INET6} or handle.getsockname()[1] != port:
            return None
        host, its_port = handle.getpeername()[:2]
    except OSError:  # it listens, or has ended
        return None
    return str(host).removeprefix(_MAPPED), int(its_port)
