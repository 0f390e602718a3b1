"""One encoded chunk on its way to the learner."""

from dataclasses import dataclass
from typing import Protocol

from rollcast.v1 import trajectory_pb2

from actor_client.connection.books import Books
from actor_client.connection.gate import Gate


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
