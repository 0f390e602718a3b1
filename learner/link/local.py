"""Lets two processes of a learner find each other: the service listens at a `LocalListener`, and the process that it starts dials.

The process gets the address, a random key and the ring of shared memory by its environment. This module loads fast, so that the
process can be started before the service loads everything else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, Final, TypeAlias

from learner.link.ring import RING_BYTES, RingReader, RingWriter, make_memory

if sys.platform == "win32":
    from multiprocessing.connection import PipeConnection

    LocalConnection: TypeAlias = Connection[Any, Any] | PipeConnection[Any, Any]
else:
    LocalConnection: TypeAlias = "Connection[Any, Any]"

ADDRESS_VARIABLE: Final = "ROLLCAST_FRONT_ADDRESS"
KEY_VARIABLE: Final = "ROLLCAST_FRONT_KEY"
RING_VARIABLE: Final = "ROLLCAST_FRONT_RING"
_KEY_BYTES: Final = 32
_BACKLOG: Final = 64
"""Processes that may dial at once."""


class LocalListener:
    """Listens for one process of this machine that knows a random key.

    The address is a socket in a folder that only this user can enter; on Windows it is a named pipe.

    Args:
        ring_bytes: Size of the ring of shared memory for large messages to the process.
        inherits_ring: Whether the process inherits the ring; otherwise `send_ring` may send it one.

    Attributes:
        inherited: Descriptors that the process must inherit.

    Raises:
        OSError: The folder for temporary files cannot be used, or its path is too long for a socket; or there is no memory.
    """

    def __init__(self, ring_bytes: int = RING_BYTES, *, inherits_ring: bool = True) -> None:
        self._folder: str | None = None
        if sys.platform == "win32":
            address = rf"\\.\pipe\rollcast-{secrets.token_hex(16)}"
        else:
            self._folder = tempfile.mkdtemp(prefix="rollcast-")  # mode 0700
            address = str(Path(self._folder) / "front")
        self._address = address
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._is_given_up = False
        self._ring_bytes = ring_bytes
        self._ring: int | None = None
        try:
            self._ring = make_memory(ring_bytes) if inherits_ring else None
            self._listener = Listener(address, backlog=_BACKLOG, authkey=self._key)
        except OSError:
            self._remove()
            raise
        self.inherited = () if self._ring is None else (self._ring,)

    def environment(self) -> Mapping[str, str]:
        """Returns the variables with which a process finds this listener."""
        found = {ADDRESS_VARIABLE: self._address, KEY_VARIABLE: self._key.hex()}
        return found if self._ring is None else {**found, RING_VARIABLE: f"{self._ring} {self._ring_bytes}"}

    def ring(self) -> RingWriter | None:
        """Returns this side of the ring; None without one."""
        return None if self._ring is None else RingWriter(self._ring, self._ring_bytes)

    def accept(self) -> LocalConnection | None:
        """Waits for the process; strangers are sent away. Returns None after `give_up`."""
        while not self._is_given_up:
            with contextlib.suppress(AuthenticationError, EOFError, OSError):
                return self._listener.accept()
        return None

    def give_up(self) -> None:
        """Ends a wait in `accept`; callable from any thread."""
        self._is_given_up = True
        with contextlib.suppress(OSError):
            Client(self._address).close()  # a stranger, who wakes `accept`

    def close(self) -> None:
        """Stops listening, and removes the address and the descriptor of the ring."""
        self._listener.close()
        self._remove()

    def _remove(self) -> None:
        # None before the close: a signal that ends the learner may call this again, amid the call.
        ring, self._ring = self._ring, None
        if ring is not None:
            os.close(ring)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def dial(environ: Mapping[str, str] = os.environ) -> LocalConnection:
    """Connects to the front that started this process.

    Raises:
        KeyError, ValueError: The process was not started by a front.
        OSError, EOFError, multiprocessing.AuthenticationError: The front is gone or is another one.
    """
    return Client(environ[ADDRESS_VARIABLE], authkey=bytes.fromhex(environ[KEY_VARIABLE]))


def inherited_ring(environ: Mapping[str, str] = os.environ) -> RingReader | None:
    """Returns this process's side of the ring; None without one.

    Raises:
        OSError, ValueError: The process was not started by a front.
    """
    told = environ.get(RING_VARIABLE)
    if told is None:
        return None
    descriptor, size = map(int, told.split())
    try:
        return RingReader(descriptor, size)
    finally:
        os.close(descriptor)


def send_ring(connection: LocalConnection) -> RingWriter | None:
    """Makes a ring and sends the other process its descriptor; returns None where there is no ring (Windows).

    Raises:
        OSError: The other process has ended.
    """
    if sys.platform == "win32":
        return None
    memory = make_memory(RING_BYTES)
    if memory is None:
        return None
    try:
        send_handle(connection, memory, None)
        return RingWriter(memory, RING_BYTES)
    finally:
        os.close(memory)


def receive_ring(connection: LocalConnection) -> RingReader | None:
    """Receives what `send_ring` sent.

    Raises:
        EOFError, OSError: The front has ended.
    """
    if sys.platform == "win32":
        return None
    memory = recv_handle(connection)
    try:
        return RingReader(memory, RING_BYTES)
    finally:
        os.close(memory)


def connect_ranks(one: tuple[int, int, LocalConnection], other: tuple[int, int, LocalConnection]) -> None:
    """Sends each of two ranks one end of a pair of sockets.

    Args:
        one: Number, id of its process, and connection of a rank.
        other: The same of the other one.

    Raises:
        OSError: A rank has ended.
    """
    for (_, process, connection), (number, _, _), handle in zip(
        (one, other), (other, one), socket.socketpair(), strict=True
    ):
        with handle:
            connection.send_bytes(str(number).encode())
            if sys.platform == "win32":
                connection.send_bytes(handle.share(process))
            else:
                send_handle(connection, handle.fileno(), process)


def receive_peers(connection: LocalConnection, ranks: int) -> dict[int, socket.socket]:
    """Receives what `connect_ranks` sent: a socket to each other rank, by its number.

    Args:
        connection: To the service.
        ranks: Number of ranks.

    Raises:
        EOFError, OSError: The service has ended.
    """
    found: dict[int, socket.socket] = {}
    while len(found) < ranks - 1:
        number = int(connection.recv_bytes())
        if sys.platform == "win32":
            found[number] = socket.fromshare(connection.recv_bytes())
        else:
            found[number] = socket.socket(fileno=recv_handle(connection))
    return found
