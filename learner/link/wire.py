"""Carries the two channels of a link between the two processes of a learner, over a local connection.

The front listens at a `Door` and starts the trainers' process with the variables of `Door.environment`; that process calls
`dial`. Then each side has a `Wire`, which sends the messages of one of its channels and puts what arrives into the other.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final, TypeAlias

from learner.link.channel import Channel
from learner.link.codec import PIECE_BYTES, Assembler, DamagedMessageError, Encoded
from learner.link.control import Freed
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


class Door:
    """Listens for one process of this machine that knows a random key.

    The address is a socket in a folder that only this user can enter; on Windows it is a named pipe.

    Args:
        ring_bytes: Size of the ring of shared memory for large messages to the process.

    Attributes:
        inherited: Descriptors that the process must inherit.
    """

    def __init__(self, ring_bytes: int = RING_BYTES) -> None:
        self._ring_bytes = ring_bytes
        self._ring = make_memory(ring_bytes)
        self.inherited = () if self._ring is None else (self._ring,)
        self._folder: str | None = None
        if sys.platform == "win32":
            address = rf"\\.\pipe\rollcast-{secrets.token_hex(16)}"
        else:
            self._folder = tempfile.mkdtemp(prefix="rollcast-")  # mode 0700
            address = str(Path(self._folder) / "front")
        self._address = address
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._listener = Listener(address, authkey=self._key)
        self._is_given_up = False

    def environment(self) -> Mapping[str, str]:
        """Returns the variables with which a process finds this door."""
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
        if self._ring is not None:
            os.close(self._ring)
            self._ring = None
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


def _shut(connection: LocalConnection) -> None:
    """Ends a connection for both sides, and with it a read in another thread, which closing alone does not end."""
    if sys.platform == "win32":
        connection.close()
        return
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as handle:
        handle.shutdown(socket.SHUT_RDWR)


class Wire:
    """Sends one channel over a connection and receives another, each in a thread of its own.

    Args:
        connection: The connection; closed at the end.
        outgoing: Channel whose messages are sent.
        incoming: Channel that takes what arrives; its receivers must not block.
        ring: This side of the ring: the writer of `outgoing`, the reader of `incoming`; None without one.
        on_end: Called once, in the reading thread, when the other side has closed the connection or has ended. Its
            argument describes a fault; it is empty for an ordinary end.
    """

    def __init__(
        self,
        connection: LocalConnection,
        outgoing: Channel[Any],
        incoming: Channel[Any],
        on_end: Callable[[str], object],
        ring: RingWriter | RingReader | None = None,
    ) -> None:
        self._room = ring if isinstance(ring, RingWriter) else None
        self._source = ring if isinstance(ring, RingReader) else None
        if self._room is not None:
            room = self._room
            incoming.divert(Freed, lambda message: room.free(message.through))
        self._connection = connection
        self._outgoing = outgoing
        self._incoming = incoming
        self._on_end = on_end
        self._woken = threading.Event()
        self._is_closing = False
        self._writer = threading.Thread(target=self._write, name="link-writer", daemon=True)
        self._reader = threading.Thread(target=self._read, name="link-reader", daemon=True)

    def start(self) -> None:
        """Starts both threads."""
        self._reader.start()
        self._writer.start()
        self._outgoing.connect(self._woken.set)

    def close(self, seconds: float) -> None:
        """Sends what waits, then closes the connection. Do not call it in the reading thread.

        Args:
            seconds: Longest wait for a receiver that does not take the messages, and again for the reading thread.
        """
        self._is_closing = True
        self._woken.set()
        self._writer.join(seconds)
        _shut(self._connection)
        self._reader.join(seconds)
        self._connection.close()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the reader notices the end, too
            while True:
                self._woken.wait()
                self._woken.clear()
                is_last = self._is_closing
                for message in self._outgoing.receive():
                    for piece in Encoded(message).pieces(ring=self._room):
                        self._connection.send_bytes(piece)
                if is_last:
                    return

    def _read(self) -> None:
        assembler = Assembler(self._source)
        fault = ""
        try:
            while True:
                message = assembler.add(self._connection.recv_bytes(2 * PIECE_BYTES))
                if message is not None:
                    self._incoming.send(message)
                    if self._source is not None and (through := self._source.news()) is not None:
                        self._outgoing.send(Freed(through))
        except (EOFError, ConnectionResetError):
            if not assembler.is_between_messages:
                fault = "the other process ended in the middle of a message"
        except DamagedMessageError as error:
            fault = str(error)
        except (OSError, TypeError, ValueError) as error:  # TypeError: closed by another thread during a read
            fault = "" if self._is_closing else f"{type(error).__name__}: {error}"
        if self._room is not None:
            self._room.close()
        self._on_end(fault)
