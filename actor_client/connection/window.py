"""Chunks that the learner has not acked: numbered when first sent, kept until acked, resent after a reconnection.

Beside the window is a ring of spooled chunks, for trainers with replay memory: those recorded while there was no connection,
and those that were unacked when the learner restarted. They have no number and use no credit; they leave the ring as credit
allows, oldest first.

The numbers of a session begin at 1 and have no gaps. A chunk gets its number at the first transmission, so that a chunk
that waits for credit in bytes delays only chunks of its own behavior, and a chunk that is dropped before it was sent
leaves no gap.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from rollcast.v1 import trajectory_pb2

from actor_client.connection.books import Books
from actor_client.connection.gate import Gate

# Bytes of unacked chunks at which no more steps are taken. The learner's credit is the usual limit; this one bounds
# memory if a learner grants too much.
WINDOW_BYTES = 64 * 1024 * 1024


class Owner(Protocol):
    """The behavior of a chunk, whose number and gate change when the learner restarts."""

    @property
    def index(self) -> int:
        """The learner's number of the behavior."""

    @property
    def gate(self) -> Gate:
        """Credit of the behavior."""

    def may_send(self, steps: int) -> bool:
        """Returns whether credit allows for sending so many spooled steps."""


@dataclass(slots=True, eq=False)
class OutgoingChunk:
    """One encoded chunk to be sent.

    Attributes:
        request: The message; its sequence is filled in at the first transmission.
        gate: Credit of its behavior; chunks of one behavior are sent in order.
        books: The books that count its rows as unacked.
        rows: Number of steps.
        size_bytes: Encoded size of the chunk, which credit in bytes counts.
        owner: Its behavior; None for a chunk that is never spooled.
        is_spooled: Whether it waits for the connection to return.
        sequence: Number of the chunk; 0 until it is sent.
        sent_at: Time of the last write, in monotonic seconds; 0 before the first.
        digest: Digest of its columns; empty without a history.
    """

    request: trajectory_pb2.UploadRequest
    gate: Gate
    books: Books
    rows: int
    size_bytes: int
    owner: Owner | None = None
    is_spooled: bool = False
    sequence: int = 0
    sent_at: float = 0.0
    digest: str = ""


class SendWindow:
    """The unacked and the spooled chunks of one session.

    The stepping thread calls `put` and `spool`; the connection's thread calls all else.

    Attributes:
        lock: Held while the session changes, so that no chunk of the old session enters after a `clear`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._sent: deque[OutgoingChunk] = deque()  # numbered, oldest first
        self._resent = 0  # number of chunks in `_sent` that the present stream has carried
        self._waiting: deque[OutgoingChunk] = deque()  # not numbered yet
        self._spool: deque[OutgoingChunk] = deque()
        self._spooled_bytes = 0
        self._next_sequence = 1
        self._bytes = 0

    @property
    def spooled_bytes(self) -> int:
        """Bytes of all spooled chunks, read without the lock."""
        return self._spooled_bytes

    @property
    def unacked_bytes(self) -> int:
        """Bytes of all unacked chunks, read without the lock."""
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
        return not self._sent and not self._waiting and not self._spool

    @property
    def chunks(self) -> int:
        """Number of unacked chunks."""
        return len(self._sent) + len(self._waiting)

    def put(self, outgoing: OutgoingChunk) -> None:
        """Keeps a chunk until it is acked; its books already count its rows as unacked."""
        with self.lock:
            self._waiting.append(outgoing)
            self._bytes += outgoing.size_bytes
            outgoing.gate.sealed(outgoing.size_bytes)

    def spool(self, outgoing: OutgoingChunk, most_bytes: int) -> list[OutgoingChunk]:
        """Keeps a chunk for the time when the connection is back; its books count its rows as unacked.

        Args:
            outgoing: The chunk.
            most_bytes: Most bytes of all spooled chunks.

        Returns:
            The oldest chunks, which are dropped{outage_full} to make room.
        """
        with self.lock:
            self._keep([outgoing])
            dropped: list[OutgoingChunk] = []
            while self._spooled_bytes > most_bytes:
                oldest = self._spool.popleft()
                self._spooled_bytes -= oldest.size_bytes
                _give_up(oldest, "outage_full")
                dropped.append(oldest)
            return dropped

    def take(self) -> OutgoingChunk | None:
        """Returns the chunk to send next, numbered, or None.

        Chunks of a former stream come first, then the oldest chunk whose behavior has credit in bytes, then the oldest
        spooled one whose behavior has credit in steps and in bytes.
        """
        with self.lock:
            if self._resent < len(self._sent):
                outgoing = self._sent[self._resent]
                self._resent += 1
                return outgoing
            blocked: set[int] = set()
            for position, outgoing in enumerate(self._waiting):
                if id(outgoing.gate) in blocked:
                    continue
                if not outgoing.gate.admits(outgoing.size_bytes):
                    blocked.add(id(outgoing.gate))
                    continue
                del self._waiting[position]
                self._number(outgoing)
                return outgoing
            return self._take_spooled()

    def ack(self, through: int) -> list[OutgoingChunk]:
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

    def rewind(self, next_sequence: int) -> list[OutgoingChunk]:
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

    def clear(
        self,
        reason: str,
        next_sequence: int,
        *,
        settled_through: int = 0,
        keeps: Callable[[OutgoingChunk], bool] | None = None,
    ) -> tuple[list[OutgoingChunk], list[OutgoingChunk]]:
        """Gives up all chunks that the learner has not received, and continues with another number.

        Args:
            reason: The reason in the books.
            next_sequence: The number of the next new chunk.
            settled_through: The last number that the learner received; chunks up to it are acked.
            keeps: Returns whether an unacked chunk is spooled instead; the spooled ones then stay. None gives up all.

        Returns:
            The settled chunks and the dropped ones.
        """
        with self.lock:
            settled = self._settle(settled_through)
            unacked = [*self._sent, *self._waiting]
            self._sent.clear()
            self._waiting.clear()
            self._resent = 0
            self._bytes = 0
            self._next_sequence = next_sequence
            dropped = [outgoing for outgoing in unacked if keeps is None or not keeps(outgoing)]
            if keeps is None:
                dropped += self._spool
                self._spool.clear()
                self._spooled_bytes = 0
            else:
                spooled = [*self._spool]
                self._spool.clear()
                self._keep(outgoing for outgoing in unacked if keeps(outgoing))
                self._spool.extend(spooled)
            for outgoing in dropped:
                _give_up(outgoing, reason)
            return settled, dropped

    def _acked_through(self) -> int:
        return self._sent[0].sequence - 1 if self._sent else self._next_sequence - 1

    def _keep(self, outgoing_chunks: Iterable[OutgoingChunk]) -> None:
        """Spools unacked chunks."""
        for outgoing in outgoing_chunks:
            outgoing.books.spool(outgoing.rows)
            outgoing.sequence, outgoing.is_spooled = 0, True
            self._spool.append(outgoing)
            self._spooled_bytes += outgoing.size_bytes

    def _take_spooled(self) -> OutgoingChunk | None:
        """Returns the oldest spooled chunk for which there is credit, numbered, or None."""
        blocked: set[int] = set()
        for position, outgoing in enumerate(self._spool):
            owner = outgoing.owner
            if owner is None or id(owner) in blocked:
                continue
            if not owner.may_send(outgoing.rows) or not owner.gate.admits(outgoing.size_bytes):
                blocked.add(id(owner))
                continue
            del self._spool[position]
            self._spooled_bytes -= outgoing.size_bytes
            outgoing.books.unspool(outgoing.rows)
            outgoing.is_spooled = False
            outgoing.gate = owner.gate
            outgoing.request.chunk.behavior_index = owner.index
            self._bytes += outgoing.size_bytes
            outgoing.gate.sealed(outgoing.size_bytes)
            self._number(outgoing)
            return outgoing
        return None

    def _number(self, outgoing: OutgoingChunk) -> None:
        outgoing.sequence = self._next_sequence
        chunk = outgoing.request.chunk
        chunk.sequence = outgoing.sequence
        estimated_bytes, outgoing.size_bytes = outgoing.size_bytes, chunk.ByteSize()
        outgoing.gate.sent(estimated_bytes, outgoing.size_bytes)
        self._bytes += outgoing.size_bytes - estimated_bytes
        self._next_sequence += 1
        self._sent.append(outgoing)
        self._resent += 1

    def _settle(self, through: int) -> list[OutgoingChunk]:
        settled: list[OutgoingChunk] = []
        while self._sent and self._sent[0].sequence <= through:
            outgoing = self._sent.popleft()
            outgoing.books.acked(outgoing.rows)
            self._bytes -= outgoing.size_bytes
            settled.append(outgoing)
        self._resent = max(0, self._resent - len(settled))
        return settled


def _give_up(outgoing: OutgoingChunk, reason: str) -> None:
    """Counts the rows of a spooled or unacked chunk as dropped."""
    if outgoing.is_spooled:
        outgoing.books.unspool(outgoing.rows)
    outgoing.books.drop(reason, outgoing.rows)
