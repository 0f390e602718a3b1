"""From the queue to the update buffer, with every dropped step in the books."""

from __future__ import annotations

import numpy as np
import torch
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk

from learner.buffers.buffer import UpdateBuffer
from learner.buffers.columns import on_policy_columns
from learner.ingest.ledger import Ledger
from learner.link.experience import QueuedChunk
from learner.trainers.intake import BufferIntake
from tests.learner.buffers.chunks import SPEC, make_chunk


class Parts:
    """An intake with its buffer and books."""

    def __init__(self, capacity_rows: int = 100) -> None:
        self.ledger = Ledger()
        self.buffer = UpdateBuffer(on_policy_columns(SPEC), capacity_rows, 16, torch.device("cpu"))
        self.intake = BufferIntake("Test", self.buffer, self.ledger, generation=1)

    def receive(self, chunk: Chunk) -> None:
        """Takes a chunk over that the service accepted."""
        self.ledger.enqueue("Test", chunk.rows)
        self.intake.receive(QueuedChunk(chunk, "session", 3, 1, 0.0))

    def dropped(self) -> dict[str, int]:
        """The books' reasons; and the books balance."""
        books = self.ledger.books("Test")
        assert books.balanced
        assert books.queued == self.intake.held_steps
        return dict(books.dropped)


def test_everything_good_gets_there() -> None:
    """Segments wait in the buffer; the chunk's actor is known."""
    parts = Parts()
    parts.receive(make_chunk([3, 2]))
    assert parts.intake.held_steps == 5
    parts.intake.stage(0)
    assert parts.buffer.waiting_steps == 5
    assert parts.dropped() == {}


def test_a_chunk_without_segments_is_no_experience() -> None:
    """Episodes alone leave the buffer as it is."""
    parts = Parts()
    parts.receive(Chunk(generation=1))
    parts.intake.stage(0)
    assert parts.dropped() == {}


def test_another_generation_is_dropped() -> None:
    """Steps under policies of an earlier start are never trained."""
    parts = Parts()
    chunk = make_chunk([3])
    chunk.generation = 7
    parts.receive(chunk)
    assert parts.dropped() == {"generation": 3}


def test_segments_are_as_old_as_their_oldest_row() -> None:
    """A segment with one old row is dropped whole; its neighbours stay."""
    parts = Parts()
    parts.receive(make_chunk([2, 3, 1], version=4, offsets=[1, 1, 0, 1, 1, 1]))
    parts.intake.stage(5)
    assert parts.dropped() == {"stale": 3}
    assert parts.buffer.waiting_steps == 3


def test_a_new_version_makes_waiting_steps_stale() -> None:
    """What waits is checked again when a version was completed."""
    parts = Parts()
    parts.receive(make_chunk([2, 3], version=4, offsets=[0, 0, 1, 1, 1]))
    parts.intake.stage(4)
    parts.intake.new_version(5)
    assert parts.dropped() == {"stale": 2}


def test_evaluation_and_demonstration_are_not_trained() -> None:
    """Only segments for training enter the buffer."""
    parts = Parts()
    purposes = np.array([Purpose.TRAIN, Purpose.EVALUATE, Purpose.UNSPECIFIED, Purpose.DEMO], np.uint8)
    parts.receive(make_chunk([1, 2, 3, 4], purpose=purposes))
    parts.intake.stage(0)
    assert parts.dropped() == {"not_for_training": 6}
    assert parts.buffer.waiting_steps == 4


def test_a_segment_that_no_block_holds_is_dropped() -> None:
    """An actor that ignores time_horizon cannot stop the trainer."""
    parts = Parts()
    parts.receive(make_chunk([16, 15]))
    parts.intake.stage(0)
    assert parts.dropped() == {"too_long": 16}
    assert parts.buffer.waiting_steps == 15


def test_what_finds_no_room_waits_on_the_host() -> None:
    """A full ring delays chunks, keeps their order, and loses nothing."""
    parts = Parts(capacity_rows=20)
    for first in range(0, 40, 4):
        parts.receive(make_chunk([3, 1], first=first))
    received: list[float] = []
    while parts.intake.held_steps:
        parts.intake.stage(0)
        parts.buffer.take(5)
        rows = parts.buffer.plan().step_rows
        received.extend(parts.buffer.ring.storage["reward"].index_select(0, rows).tolist())
        parts.ledger.trained("Test", parts.buffer.settle())
        assert parts.dropped() == {}
    assert received == list(range(40))


def test_everything_can_be_forgotten_with_a_reason() -> None:
    """What is staged, taken and waiting on the host leaves the books."""
    parts = Parts(capacity_rows=20)
    for _ in range(6):
        parts.receive(make_chunk([3, 1]))
    parts.intake.stage(0)
    parts.buffer.take(2)
    parts.intake.clear("reset")
    assert parts.dropped() == {"reset": 24}
    assert parts.intake.held_steps == 0
