"""Tests the send window: numbers, order and resends."""

from __future__ import annotations

import pytest
from rollcast.v1 import trajectory_pb2

from actor_client.connection.books import Books
from actor_client.connection.gate import Gate
from actor_client.connection.window import Parcel, SendWindow

BIG = trajectory_pb2.Credit(bytes_through=1 << 40)


def filled(*rows: int) -> tuple[SendWindow, Books, Gate]:
    """Returns a window with chunks of this many rows and credit for all."""
    window, books, gate = SendWindow(), Books(), Gate(1)
    gate.grant(BIG)
    for count in rows:
        put(window, books, gate, count)
    return window, books, gate


def put(window: SendWindow, books: Books, gate: Gate, rows: int) -> None:
    """Adds a chunk."""
    books.produced(rows)
    books.seal(rows)
    chunk = trajectory_pb2.Chunk(rows=rows, sequence=1 << 34)
    window.put(Parcel(trajectory_pb2.UploadRequest(chunk=chunk), gate, books, rows, chunk.ByteSize()))


def sent(window: SendWindow) -> list[int]:
    """Sends all that may be sent, and returns the numbers."""
    numbers = []
    while (parcel := window.take()) is not None:
        assert parcel.request.chunk.sequence == parcel.sequence
        numbers.append(parcel.sequence)
    return numbers


def test_a_rewind_acks_what_is_below_and_sends_the_rest_again() -> None:
    """A rewind acks the chunks below the learner's next sequence and sends the rest again."""
    window, books, _ = filled(1, 2, 3)
    assert sent(window) == [1, 2, 3]
    window.rewind(2)
    assert books.view().acked == 1
    assert sent(window) == [2, 3]
    window.ack(3)
    assert window.empty
    assert window.unacked_bytes == 0


def test_new_chunks_follow_the_resent_ones() -> None:
    """New chunks follow the resent ones."""
    window, books, gate = filled(1, 1)
    sent(window)
    put(window, books, gate, 1)
    window.rewind(1)
    assert sent(window) == [1, 2, 3]


def test_a_chunk_without_credit_holds_up_its_own_behavior_only() -> None:
    """Chunks are numbered when sent, so a behavior without credit leaves no gap."""
    window, books, _ = filled()
    poor, rich = Gate(1), Gate(1)
    rich.grant(BIG)
    for gate in (poor, rich, poor, rich):
        put(window, books, gate, 1)
    assert sent(window) == [1, 2]
    poor.grant(BIG)
    assert sent(window) == [3, 4]


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
    assert window.clear("generation", 8) == 9
    assert books.view().dropped == {"generation": 9}
    put(window, books, gate, 1)
    assert sent(window) == [8]


def test_credit_in_bytes_counts_the_size_that_is_sent() -> None:
    """Credit in bytes counts the size on the wire; a waiting chunk counts its largest possible number."""
    window, books, gate = filled()
    put(window, books, gate, 7)
    estimated = gate.waiting_bytes
    parcel = window.take()
    assert parcel is not None
    assert gate.waiting_bytes == 0
    assert gate.sent_bytes == parcel.request.chunk.ByteSize() < estimated
    assert window.unacked_bytes == gate.sent_bytes
