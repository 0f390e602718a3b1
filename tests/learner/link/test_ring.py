"""Tests the ring of shared memory, with both sides in one process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.link.codec import Assembler, DamagedMessageError, Encoded
from learner.link.ring import LEAST_BYTES, RingReader, RingWriter, make_memory, most_bytes
from learner.link.to_trainers import Experience
from tests.learner.service.calls.samples import make_chunk

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes inherit no descriptors there")

SIZE = 2**19
SECONDS = 60.0
MOST = most_bytes(SIZE)


@contextmanager
def sides(size: int = SIZE) -> Iterator[tuple[RingWriter, RingReader]]:
    """Returns both sides of a ring."""
    descriptor = make_memory(size)
    assert descriptor is not None
    try:
        yield RingWriter(descriptor, size), RingReader(descriptor, size)
    finally:
        os.close(descriptor)


@given(st.lists(st.integers(LEAST_BYTES, MOST), min_size=1, max_size=30))
def test_everything_arrives_whatever_the_sizes(sizes: list[int]) -> None:
    """Messages of any allowed sizes arrive unchanged, one after the other, also around the ring's end."""
    with sides() as (writer, reader):
        for number, size in enumerate(sizes):
            sent = np.full(size, number % 251, np.uint8)
            position = writer.put([sent[: size // 3].data, sent[size // 3 :].data], size)
            assert position is not None
            assert np.array_equal(reader.take(position, size), sent)
            if (through := reader.news()) is not None:
                writer.free(through)


@pytest.mark.parametrize("size", [0, LEAST_BYTES - 1, MOST + 1, 10 * SIZE])
def test_small_and_too_large_messages_are_sent_whole(size: int) -> None:
    """They are not put into the ring."""
    with sides() as (writer, _):
        assert writer.put([bytes(size)], size) is None


def test_the_writer_waits_for_the_reader() -> None:
    """A full ring is not overwritten: the writer waits until the reader has reported, or until it is closed."""
    with sides() as (writer, reader):
        first, second = (writer.put([bytes([number]) * MOST], MOST) for number in (1, 2))
        positions: list[int | None] = []
        thread = threading.Thread(target=lambda: positions.append(writer.put([bytes([3]) * MOST], MOST)))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert first is not None
        assert second is not None
        assert reader.take(first, MOST)[0] == 1
        writer.free(reader.news() or 0)
        thread.join(SECONDS)
        assert positions == [SIZE]
        assert reader.take(second, MOST)[-1] == 2
        thread = threading.Thread(target=lambda: positions.append(writer.put([bytes(MOST)], MOST)))
        thread.start()
        writer.close()
        thread.join(SECONDS)
        assert positions == [SIZE, None]


@pytest.mark.parametrize(("start", "extent"), [(0, SIZE + 1), (SIZE - 1, 2), (LEAST_BYTES - 1, 1)])
def test_positions_that_hold_no_message_are_refused(start: int, extent: int) -> None:
    """A position that was taken, or a message beyond the end, is an error."""
    with sides() as (_, reader):
        reader.take(0, LEAST_BYTES)
        with pytest.raises(ValueError, match="the ring of"):
            reader.take(start, extent)


def test_a_message_whose_ring_is_missing_is_damaged() -> None:
    """Without the ring, or at a wrong position, a message is refused."""
    with sides() as (writer, reader):
        message = Experience(0, 1, replace(make_chunk(5_000)), "session", 0, 1, 0.5)
        whole = b"".join(bytes(piece) for piece in Encoded(message).pieces(ring=writer))
        assert len(whole) < LEAST_BYTES
        with pytest.raises(DamagedMessageError, match="mark of the link"):
            Assembler().add(whole)
        found = Assembler(reader).add(whole)
        assert isinstance(found, Experience)
        assert np.array_equal(found.chunk.columns["obs/state"], message.chunk.columns["obs/state"])
        with pytest.raises(DamagedMessageError, match="the ring of"):
            Assembler(reader).add(whole)
