"""Tests the send window: numbers, order and resends."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from rollcast.v1 import trajectory_pb2

from actor_client.connection.books import Books, BooksView
from actor_client.connection.gate import Gate
from actor_client.connection.window import OutgoingChunk, SendWindow

BIG = trajectory_pb2.Credit(bytes_through=1 << 40)


def filled(*rows: int) -> tuple[SendWindow, Books, Gate]:
    """Returns a window with chunks of this many rows and credit for all."""
    window, books, gate = SendWindow(), Books(), Gate(1)
    gate.grant(BIG)
    for count in rows:
        window.put(sealed(books, gate, count))
    return window, books, gate


def sealed(books: Books, gate: Gate, rows: int, owner: Behavior | None = None) -> OutgoingChunk:
    """Returns a chunk of recorded rows."""
    books.produced(rows)
    books.seal(rows)
    chunk = trajectory_pb2.Chunk(rows=rows, sequence=1 << 34)
    return OutgoingChunk(trajectory_pb2.UploadRequest(chunk=chunk), gate, books, rows, chunk.ByteSize(), owner)


def sent(window: SendWindow) -> list[int]:
    """Sends all that may be sent, and returns the numbers."""
    numbers = []
    while (outgoing := window.take()) is not None:
        assert outgoing.request.chunk.sequence == outgoing.sequence
        numbers.append(outgoing.sequence)
    return numbers


def test_a_rewind_acks_what_is_below_and_sends_the_rest_again() -> None:
    """A rewind acks the chunks below the learner's next sequence and sends the rest again."""
    window, books, _ = filled(1, 2, 3)
    assert sent(window) == [1, 2, 3]
    window.rewind(2)
    assert books.view().acked == 1
    assert sent(window) == [2, 3]
    assert window.in_flight == 2
    window.ack(3)
    assert window.empty
    assert (window.acked_through, window.unacked_bytes) == (3, 0)


def test_new_chunks_follow_the_resent_ones() -> None:
    """New chunks follow the resent ones."""
    window, books, gate = filled(1, 1)
    sent(window)
    window.put(sealed(books, gate, 1))
    window.rewind(1)
    assert sent(window) == [1, 2, 3]


def test_an_ack_amid_a_resend_skips_nothing() -> None:
    """Chunks that are not resent yet when an earlier one is acked are resent in order."""
    window, _, _ = filled(1, 1, 1)
    sent(window)
    window.rewind(1)
    first = window.take()
    assert first is not None
    window.ack(first.sequence)
    assert sent(window) == [2, 3]


def test_a_chunk_without_credit_holds_up_its_own_behavior_only() -> None:
    """Chunks are numbered when sent, so a behavior without credit leaves no gap."""
    window, books, _ = filled()
    poor, rich = Gate(1), Gate(1)
    rich.grant(BIG)
    for gate in (poor, rich, poor, rich):
        window.put(sealed(books, gate, 1))
    assert sent(window) == [1, 2]
    poor.grant(BIG)
    assert sent(window) == [3, 4]


def test_chunks_of_a_behavior_leave_in_their_order() -> None:
    """A small chunk does not overtake a larger one of its behavior that exceeds the credit in bytes, spooled or not."""
    window, books, _ = filled()
    gate, small = Gate(1), sealed(books, Gate(1), 1).size_bytes
    gate.grant(trajectory_pb2.Credit(bytes_through=small))
    for rows in (300, 1):
        window.put(sealed(books, gate, rows))
    assert sent(window) == []
    behavior = Behavior(books, Gate(1), allowed=10**6)
    behavior.gate.grant(trajectory_pb2.Credit(bytes_through=small))
    for rows in (300, 1):
        spooled(window, behavior, rows)
    assert sent(window) == []


def test_an_ack_after_a_rewind_leaves_the_rest_to_resend() -> None:
    """Chunks that are acked before they are sent again are skipped, and only these."""
    window, _, _ = filled(1, 1, 1)
    sent(window)
    window.rewind(1)
    window.ack(1)
    assert sent(window) == [2, 3]


def test_a_number_that_cannot_be_sent_is_refused() -> None:
    """A sequence of forgotten acked chunks or of chunks never sent is refused."""
    window, _, _ = filled(1, 1)
    sent(window)
    window.ack(1)
    with pytest.raises(ValueError, match="expects chunk 1; 2 to 3"):
        window.rewind(1)
    with pytest.raises(ValueError, match="expects chunk 4; 2 to 3"):
        window.rewind(4)
    with pytest.raises(ValueError, match="chunk 3 is acked, but the last one sent is 2"):
        window.ack(3)


def test_clearing_drops_and_goes_on_with_another_number() -> None:
    """Clearing counts dropped chunks under their reason and continues with another number."""
    window, books, gate = filled(4, 5)
    window.take()
    settled, dropped = window.clear("generation", 8)
    assert (settled, [outgoing.rows for outgoing in dropped]) == ([], [4, 5])
    assert books.view().dropped == {"generation": 9}
    window.put(sealed(books, gate, 1))
    assert sent(window) == [8]


def test_what_a_restarted_learner_received_is_acked() -> None:
    """Clearing acks the chunks that the learner names as received, also those whose ack was not seen; only the rest is dropped."""
    window, books, _ = filled(1, 2, 4, 8)
    assert sent(window) == [1, 2, 3, 4]
    window.ack(1)
    settled, dropped = window.clear("generation", 4, settled_through=3)
    assert ([outgoing.rows for outgoing in settled], [outgoing.rows for outgoing in dropped]) == ([2, 4], [8])
    assert (books.view().acked, books.view().dropped) == (7, {"generation": 8})
    for through in (10**9, 0):  # of a session of which nothing is left
        assert window.clear("session_lost", 1, settled_through=through) == ([], [])
    assert books.view().balanced


@dataclass
class Behavior:
    """The owner of chunks, which allows for a number of sent steps."""

    books: Books
    gate: Gate
    index: int = 0
    allowed: int = 0

    def may_send(self, steps: int) -> bool:
        """Returns whether credit suffices."""
        return self.books.sent_steps + steps <= self.allowed


def spooled(window: SendWindow, behavior: Behavior, rows: int, most_bytes: int = 10**6) -> list[int]:
    """Spools a chunk, and returns the rows of those that were dropped for it."""
    return [each.rows for each in window.spool(sealed(behavior.books, behavior.gate, rows, behavior), most_bytes)]


def test_spooled_chunks_leave_as_credit_allows() -> None:
    """Spooled chunks get a number when they are sent, after all others, with the newest gate and index of their behavior."""
    window, books, gate = filled()
    behavior = Behavior(books, Gate(1))
    for rows in (3, 4, 2):
        assert spooled(window, behavior, rows) == []
    window.put(sealed(books, gate, 1))
    assert (books.view().spooled, window.chunks, window.empty) == (9, 1, False)
    assert sent(window) == [1]
    behavior.gate, behavior.index, behavior.allowed = gate, 7, 7
    outgoing, nothing = window.take(), window.take()
    assert outgoing is not None
    assert (outgoing.sequence, outgoing.rows, outgoing.request.chunk.behavior_index, nothing) == (2, 3, 7, None)
    behavior.allowed = 100
    assert sent(window) == [3, 4]
    assert window.spooled_bytes == 0
    window.ack(4)
    assert books.view() == BooksView(produced=10, acked=10)
    assert (window.empty, window.unacked_bytes) == (True, 0)


def test_a_full_ring_drops_its_oldest_chunks() -> None:
    """When the ring is full the oldest chunks are dropped{outage_full}."""
    window, books, gate = filled()
    behavior = Behavior(books, gate)
    spooled(window, behavior, 1)
    size = window.spooled_bytes
    assert [spooled(window, behavior, rows, 3 * size) for rows in (2, 3, 4, 5)] == [[], [], [1], [2]]
    assert (books.view().spooled, books.view().dropped) == (12, {"outage_full": 3})
    assert window.spooled_bytes <= 3 * size


def test_unacked_chunks_of_replay_are_kept_over_a_new_generation() -> None:
    """What a restarted learner did not receive is sent again under new numbers; of a lost session nothing is."""
    window, books, gate = filled()
    behavior = Behavior(books, gate, allowed=100)
    gate.grant(BIG)
    for rows in (1, 2, 4):
        window.put(sealed(books, gate, rows, behavior))
    window.put(sealed(books, gate, 8))  # of another trainer
    sent(window)
    spooled(window, behavior, 16)
    window.clear("generation", 2, settled_through=1, keeps=lambda outgoing: outgoing.owner is behavior)
    assert (books.view().acked, books.view().spooled, books.view().dropped) == (1, 22, {"generation": 8})
    assert sent(window) == [2, 3, 4]
    assert [outgoing.rows for outgoing in window._sent] == [2, 4, 16]
    spooled(window, behavior, 32)
    window.clear("session_lost", 1)
    assert books.view().dropped == {"generation": 8, "session_lost": 54}
    assert books.view().balanced
    assert (window.empty, window.spooled_bytes, window.unacked_bytes) == (True, 0, 0)


def test_credit_in_bytes_counts_the_size_that_is_sent() -> None:
    """Credit in bytes counts the size on the wire; a waiting chunk counts its largest possible number."""
    window, books, gate = filled()
    window.put(sealed(books, gate, 7))
    estimated = gate.waiting_bytes
    outgoing = window.take()
    assert outgoing is not None
    assert gate.waiting_bytes == 0
    assert gate.sent_bytes == outgoing.request.chunk.ByteSize() < estimated
    assert window.unacked_bytes == gate.sent_bytes
