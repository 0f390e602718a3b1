"""Tests the way from the queue to the update buffer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk

from learner.link.to_front import Pace, Settled, ToFront
from learner.link.to_trainers import Experience
from learner.service.ingest.ledger import Ledger
from learner.training.buffers.buffer import UpdateBuffer
from learner.training.buffers.columns import on_policy_columns
from learner.training.trainers.intake import BufferIntake
from learner.training.trainers.outcome_report import OutcomeReport
from tests.learner.training.buffers.chunks import SPEC, make_chunk


class Parts:
    """An intake with its buffer and books."""

    def __init__(self, capacity_rows: int = 100, *, grouped: bool = False) -> None:
        self.ledger = Ledger()
        self.buffer = UpdateBuffer(on_policy_columns(SPEC), capacity_rows, 16, torch.device("cpu"), grouped=grouped)
        self.outcomes = OutcomeReport(0, self._book)
        self.intake = BufferIntake(self.buffer, self.outcomes, generation=1)

    def _book(self, message: ToFront) -> None:
        assert isinstance(message, Settled)
        self.ledger.settle("Test", message.trained, message.dropped)

    @property
    def held_steps(self) -> int:
        """Returns the received steps without an outcome."""
        return self.intake.waiting_steps + self.buffer.waiting_steps + self.buffer.taken_steps

    def receive(self, chunk: Chunk) -> None:
        """Takes a chunk over that the service accepted."""
        self.ledger.enqueue("Test", chunk.rows)
        self.intake.receive(Experience(0, 1, chunk, "session", 3, 1, 0.0))

    def dropped(self) -> dict[str, int]:
        """Returns the reasons in the books, which must balance."""
        self.outcomes.flush(Pace())
        books = self.ledger.books("Test")
        assert books.balanced
        assert books.queued == self.held_steps
        return dict(books.dropped)


def test_everything_good_gets_there() -> None:
    """Valid segments reach the buffer with their actor."""
    parts = Parts()
    parts.receive(make_chunk([3, 2]))
    assert parts.held_steps == 5
    parts.intake.stage(0)
    assert parts.buffer.waiting_steps == 5
    assert parts.dropped() == {}


def test_a_new_version_makes_waiting_steps_stale() -> None:
    """Waiting segments are checked again after each version."""
    parts = Parts()
    parts.receive(make_chunk([2, 3], version=4, offsets=[0, 0, 1, 1, 1]))
    parts.intake.stage(4)
    parts.intake.new_version(5)
    assert parts.dropped() == {"stale": 2}


def test_a_dropped_segment_drops_those_of_its_mates() -> None:
    """Mates of a segment that is too long, not for training or stale are dropped with it and counted."""
    groups = np.array([7, 7, 8, 8, 0], np.uint64)
    parts = Parts(grouped=True)
    parts.receive(make_chunk([16, 1, 2, 3, 4], group=groups))
    assert parts.dropped() == {"too_long": 16, "mate": 1}

    purposes = np.array([Purpose.TRAIN, Purpose.TRAIN, Purpose.EVALUATE, Purpose.TRAIN, Purpose.TRAIN], np.uint8)
    parts = Parts(grouped=True)
    parts.receive(make_chunk([1, 1, 2, 3, 4], group=groups, purpose=purposes))
    assert parts.dropped() == {"not_for_training": 2, "mate": 3}

    parts = Parts(grouped=True)
    parts.receive(make_chunk([1, 1, 1, 1, 1], group=groups, offsets=[1, 1, 0, 1, 0]))
    parts.intake.stage(1)
    assert parts.dropped() == {"stale": 2, "mate": 1}
    assert parts.buffer.waiting_steps == 2


def test_what_finds_no_room_waits_on_the_host() -> None:
    """Chunks that do not fit the ring wait on the host in order."""
    parts = Parts(capacity_rows=20)
    for first in range(0, 40, 4):
        parts.receive(make_chunk([3, 1], first=first))
    received: list[float] = []
    while parts.held_steps:
        parts.intake.stage(0)
        parts.buffer.take(5)
        rows = parts.buffer.plan().step_rows
        received.extend(parts.buffer.ring.storage["reward"].index_select(0, rows).tolist())
        parts.outcomes.trained(parts.buffer.settle())
        assert parts.dropped() == {}
    assert received == list(range(40))


def test_everything_can_be_forgotten_with_a_reason() -> None:
    """Staged, taken and waiting steps are dropped with a reason."""
    parts = Parts(capacity_rows=20)
    for _ in range(6):
        parts.receive(make_chunk([3, 1]))
    parts.intake.stage(0)
    parts.buffer.take(2)
    parts.intake.clear("reset")
    assert parts.dropped() == {"reset": 24}
    assert parts.held_steps == 0


PURPOSES = np.array([Purpose.TRAIN, Purpose.EVALUATE, Purpose.UNSPECIFIED, Purpose.DEMO], np.uint8)


@pytest.mark.parametrize(
    ("chunk", "dropped", "waiting"),
    [
        (Chunk(generation=1), {}, 0),
        (replace(make_chunk([3], version=5), generation=7), {"generation": 3}, 0),
        (make_chunk([2, 3, 1], version=4, offsets=[1, 1, 0, 1, 1, 1]), {"stale": 3}, 3),
        (make_chunk([1, 2, 3, 4], version=5, purpose=PURPOSES), {"not_for_training": 6}, 4),
        (make_chunk([16, 15], version=5), {"too_long": 16}, 15),
    ],
    ids=["empty", "another generation", "one old row", "not of training", "longer than a block"],
)
def test_what_is_not_trained_is_dropped(chunk: Chunk, dropped: dict[str, int], waiting: int) -> None:
    """Whole segments are dropped with a reason, and the others stay."""
    parts = Parts()
    parts.receive(chunk)
    parts.intake.stage(5)
    assert parts.dropped() == dropped
    assert parts.buffer.waiting_steps == waiting
