"""Carries the two channels of a link between the two processes of a learner, over a connection of `learner.link.local` or `learner.link.stream`.

Each side has a `Wire`, which sends the messages of one of its channels and puts what arrives into the other.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

from learner.link.channel import Channel
from learner.link.codec import MESSAGES, PIECE_BYTES, Assembler, DamagedMessageError, Encoded
from learner.link.control import Freed
from learner.link.local import LocalConnection
from learner.link.ring import RingReader, RingWriter
from learner.link.stream import StreamConnection


def _streamed(connection: LocalConnection | StreamConnection) -> LocalConnection | StreamConnection:
    """Returns a connection that takes a message with one call of the system, not two; the same where it is no socket (Windows)."""
    if sys.platform == "win32" or isinstance(connection, StreamConnection):
        return connection
    with connection:
        return StreamConnection(socket.socket(fileno=os.dup(connection.fileno())))


def _shut(connection: LocalConnection | StreamConnection) -> None:
    """Ends a connection for both sides, and with it a read in another thread, which closing alone does not end."""
    if isinstance(connection, StreamConnection):
        connection.shut()
    else:
        connection.close()


class Wire:
    """Sends one channel over a connection and receives another, each in a thread of its own.

    Args:
        connection: The connection; the wire takes it over, and closes it at the end.
        outgoing: Channel whose messages are sent.
        incoming: Channel that takes what arrives; its receivers must not block.
        ring: This side of the ring: the writer of `outgoing`, the reader of `incoming`; None without one.
        on_end: Called once, in the reading thread, when the other side has closed the connection or has ended. Its
            argument describes a fault; it is empty for an ordinary end.
        kinds: Types of the messages that may arrive.
    """

    def __init__(
        self,
        connection: LocalConnection | StreamConnection,
        outgoing: Channel[Any],
        incoming: Channel[Any],
        on_end: Callable[[str], object],
        ring: RingWriter | RingReader | None = None,
        *,
        kinds: Collection[type] = MESSAGES,
    ) -> None:
        self._kinds = kinds
        self._room = ring if isinstance(ring, RingWriter) else None
        self._source = ring if isinstance(ring, RingReader) else None
        if self._room is not None:
            room = self._room
            incoming.divert(Freed, lambda message: room.free(message.through))
        self._connection = _streamed(connection)
        self._outgoing = outgoing
        self._incoming = incoming
        self._on_end = on_end
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_closing = False
        self._writer = threading.Thread(target=self._write, name="link-writer", daemon=True)
        self._reader = threading.Thread(target=self._read, name="link-reader", daemon=True)

    def start(self) -> None:
        """Starts both threads."""
        self._reader.start()
        self._writer.start()
        self._outgoing.connect(self._wake)

    def close(self, seconds: float) -> None:
        """Sends what waits, then closes the connection. Do not call it in the reading thread.

        Args:
            seconds: Longest wait for a receiver that does not take the messages, and again for the reading thread.
        """
        self._is_closing = True
        self._wake()
        self._writer.join(seconds)
        _shut(self._connection)
        self._reader.join(seconds)
        self._connection.close()

    def cut(self) -> None:
        """Ends the connection at once, for both sides; from any thread."""
        _shut(self._connection)

    def _wake(self) -> None:
        self._woken.put(None)

    def _write(self) -> None:
        try:
            while True:
                self._woken.get()
                is_last = self._is_closing
                for message in self._outgoing.receive():
                    for piece in Encoded(message).pieces(ring=self._room):
                        self._connection.send_bytes(piece)
                if is_last:
                    return
        except OSError:
            return  # the reader notices the end, too
        except BaseException:  # a message that cannot be sent: both sides end, instead of waiting for it for ever
            self.cut()
            raise

    def _read(self) -> None:
        assembler = Assembler(self._source, self._kinds)
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
