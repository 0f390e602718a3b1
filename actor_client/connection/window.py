"""Chunks that the learner has not acked: numbered when first sent, kept until acked, resent after a reconnection.

The numbers of a session begin at 1 and have no gaps. A chunk gets its number at the first transmission, so that a chunk
that waits for credit in bytes delays only chunks of its own behavior, and a chunk that is dropped before it was sent
leaves no gap.
"""

import threading
from collections import deque
from dataclasses import dataclass

from rollcast.v1 import trajectory_pb2

from actor_client.connection.books import Books
from actor_client.connection.gate import Gate

# Bytes of unacked chunks at which no more steps are taken. The learner's credit is the usual limit; this one bounds
# memory if a learner grants too much.
WINDOW_BYTES = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Parcel:
    """One encoded chunk to be sent.

    Attributes:
        request: The message; its sequence is filled in at the first transmission.
        gate: Credit of its behavior; chunks of one behavior are sent in order.
        books: The books that count its rows as unacked.
        rows: Number of steps.
        size_bytes: Encoded size of the chunk, which credit in bytes counts.
        sequence: Number of the chunk; 0 until it is sent.
        sent_at: Time of the last write, in monotonic seconds; 0 before the first.
        digest: Digest of its columns; empty without a history.
    """

    request: trajectory_pb2.UploadRequest
    gate: Gate
    books: Books
    rows: int
    size_bytes: int
    sequence: int = 0
    sent_at: float = 0.0
    digest: str = ""


class SendWindow:
    """The unacked chunks of one session. The stepping thread calls `put`; the connection's thread calls all else.

    Attributes:
        lock: Held while the session changes, so that no chunk of the old session enters after a `clear`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._sent: deque[Parcel] = deque()  # numbered, oldest first
        self._resent = 0  # number of chunks in `_sent` that the present stream has carried
        self._waiting: deque[Parcel] = deque()  # not numbered yet
        self._next_sequence = 1
        self._bytes = 0

    @property
    def unacked_bytes(self) -> int:
        """Bytes of all kept chunks, read without the lock."""
        return self._bytes

    @property
    def next_sequence(self) -> int:
        """The number of the next new chunk."""
        return self._next_sequence

    @property
    def acked_through(self) -> int:
        """The last number that the learner has settled."""
        with self.lock:
            return self._acked_through()

    @property
    def in_flight(self) -> int:
        """Number of chunks that were sent and not acked."""
        return len(self._sent)

    @property
    def empty(self) -> bool:
        """True if every chunk has been acked or dropped."""
        return not self._sent and not self._waiting

    @property
    def chunks(self) -> int:
        """Number of kept chunks."""
        return len(self._sent) + len(self._waiting)

    def put(self, parcel: Parcel) -> None:
        """Keeps a chunk until it is acked; its books already count its rows as unacked."""
        with self.lock:
            self._waiting.append(parcel)
            self._bytes += parcel.size_bytes
            parcel.gate.sealed(parcel.size_bytes)

    def take(self) -> Parcel | None:
        """Returns the chunk to send next, numbered, or None.

        Chunks of a former stream come first, then the oldest chunk whose behavior has credit in bytes.
        """
        with self.lock:
            if self._resent < len(self._sent):
                parcel = self._sent[self._resent]
                self._resent += 1
                return parcel
            blocked: set[int] = set()
            for position, parcel in enumerate(self._waiting):
                if id(parcel.gate) in blocked:
                    continue
                if not parcel.gate.admits(parcel.size_bytes):
                    blocked.add(id(parcel.gate))
                    continue
                del self._waiting[position]
                self._number(parcel)
                return parcel
            return None

    def ack(self, through: int) -> list[Parcel]:
        """Settles all chunks up to a number.

        Returns:
            The settled chunks, whose rows are now acked.

        Raises:
            ValueError: The number was never given out.
        """
        with self.lock:
            if through >= self._next_sequence:
                raise ValueError(f"chunk {through} is acked, but the last one sent is {self._next_sequence - 1}")
            return self._settle(through)

    def rewind(self, next_sequence: int) -> list[Parcel]:
        """Begins a new stream of the same session.

        Args:
            next_sequence: The number that the learner expects; chunks below it are acked, the others will be resent.

        Returns:
            The settled chunks.

        Raises:
            ValueError: The chunk of this number is no longer kept, or was never sent.
        """
        with self.lock:
            if not self._acked_through() < next_sequence <= self._next_sequence:
                raise ValueError(
                    f"the learner expects chunk {next_sequence}; {self._acked_through() + 1} to {self._next_sequence} "
                    "can be sent"
                )
            settled = self._settle(next_sequence - 1)
            self._resent = 0
            return settled

    def clear(self, reason: str, next_sequence: int) -> int:
        """Drops all chunks, and continues with another number.

        Args:
            reason: The reason in the books.
            next_sequence: The number of the next new chunk.

        Returns:
            The number of dropped rows.
        """
        with self.lock:
            dropped = [*self._sent, *self._waiting]
            self._sent.clear()
            self._waiting.clear()
            self._resent = 0
            self._bytes = 0
            self._next_sequence = next_sequence
            for parcel in dropped:
                parcel.books.drop(reason, parcel.rows)
            return sum(parcel.rows for parcel in dropped)

    def _acked_through(self) -> int:
        return self._sent[0].sequence - 1 if self._sent else self._next_sequence - 1

    def _number(self, parcel: Parcel) -> None:
        parcel.sequence = self._next_sequence
        chunk = parcel.request.chunk
        chunk.sequence = parcel.sequence
        estimated_bytes, parcel.size_bytes = parcel.size_bytes, chunk.ByteSize()
        parcel.gate.sent(estimated_bytes, parcel.size_bytes)
        self._bytes += parcel.size_bytes - estimated_bytes
        self._next_sequence += 1
        self._sent.append(parcel)
        self._resent += 1

    def _settle(self, through: int) -> list[Parcel]:
        settled: list[Parcel] = []
        while self._sent and self._sent[0].sequence <= through:
            parcel = self._sent.popleft()
            parcel.books.acked(parcel.rows)
            self._bytes -= parcel.size_bytes
            settled.append(parcel)
        self._resent = max(0, self._resent - len(settled))
        return settled
