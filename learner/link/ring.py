"""A ring of shared memory for the arrays of messages, written by one process and read by another.

The writer copies the buffers of a message in, and tells the reader by the message's header where they are. The reader copies
them out in the same order and reports how far it is, which makes room. Positions count bytes since the beginning, so that no
position comes twice; each message is in one piece of the ring.

The memory has no name: the reading process inherits its descriptor, and it is gone with both processes, however they end.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

RING_BYTES: Final = 64 * 2**20
"""Default size; memory that was never written takes none."""
LEAST_BYTES: Final = 32 * 2**10
"""Messages with smaller buffers are sent whole, which is faster."""
_TELL_PARTS: Final = 8
"""The reader reports each time it has taken this part of the ring."""


def most_bytes(size: int) -> int:
    """Returns the largest extent of a message in a ring.

    A message waits for room for itself, for the end of the ring that it may skip, which is shorter, and for what the reader
    has taken and not reported. All of it must fit, because a reader that has taken everything reports nothing more.

    Args:
        size: Size of the ring in bytes.
    """
    return (size - size // _TELL_PARTS) // 2


def make_memory(size: int) -> int | None:
    """Returns the descriptor of new shared memory; None where a process cannot inherit one (Windows).

    Args:
        size: In bytes.

    Raises:
        OSError: The system has no memory of this size for this process.
    """
    if os.name == "nt":
        return None
    descriptor: int
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rollcast-link")
    else:
        descriptor, path = tempfile.mkstemp(prefix="rollcast-")
        Path(path).unlink()
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _mapped(descriptor: int, size: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)


class RingWriter:
    """Writes buffers; only one thread may call `put`.

    Args:
        descriptor: Of the shared memory.
        size: Its size in bytes.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._memory = _mapped(descriptor, size)
        self._size = size
        self._end = 0
        self._freed = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, parts: Iterable[bytes | memoryview], extent: int) -> int | None:
        """Copies the parts of a message into the ring, and waits for room.

        Args:
            parts: The buffers with their padding.
            extent: Bytes of all parts.

        Returns:
            Position of the first byte; None if the message must be sent whole: it is too small or too large, or the ring
            is closed.
        """
        if not LEAST_BYTES <= extent <= most_bytes(self._size):
            return None
        start = self._end
        room = self._size - start % self._size
        if extent > room:
            start += room
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or start + extent - self._freed <= self._size)
            if self._is_closed:
                return None
        at = start % self._size
        for part in parts:
            if len(part):
                self._memory[at : at + len(part)] = np.frombuffer(part, np.uint8)
                at += len(part)
        self._end = start + extent
        return start

    def free(self, through: int) -> None:
        """Makes room: the reader has taken everything before a position. From any thread."""
        with self._changed:
            self._freed = max(self._freed, through)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends a wait for room, and all use of the ring. From any thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class RingReader:
    """Reads buffers in the order in which they were written.

    Args:
        descriptor: Of the shared memory.
        size: Its size in bytes.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._memory = _mapped(descriptor, size)
        self._size = size
        self._taken = self._told = 0

    def take(self, start: int, extent: int) -> NDArray[np.uint8]:
        """Returns a copy of the bytes ``[extent]`` at a position.

        Raises:
            ValueError: The ring has no such message.
        """
        at = start % self._size
        if start < self._taken or at + extent > self._size:
            raise ValueError(f"the ring of {self._size} bytes has no {extent} bytes at {start}")
        self._taken = start + extent
        return self._memory[at : at + extent].copy()

    def news(self) -> int | None:
        """Returns the position before which everything is taken, if it is time to report it; otherwise None."""
        if self._taken - self._told < self._size // _TELL_PARTS:
            return None
        self._told = self._taken
        return self._taken
