"""The queue between the service and a trainer."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from rollcast.enums import HoldReason
from rollcast.trajectories import Chunk

from learner.ingest.queue import QueueFullError, TrajectoryQueue
from learner.ingest.wakeup import Wakeup
from learner.link.experience import Pace, QueuedChunk


def item(rows: int, *, sequence: int = 1, resident_bytes: int = 400) -> QueuedChunk:
    """A chunk that holds some memory."""
    columns = {"extra/x": np.zeros(resident_bytes, np.uint8)}
    return QueuedChunk(Chunk(sequence=sequence, rows=rows, columns=columns), "session", 0, 100, 0.0)


def test_everything_that_waits_is_taken_in_the_order_of_arrival() -> None:
    """One call takes all chunks, the oldest first, and leaves nothing."""
    queue = TrajectoryQueue(10_000)
    for sequence in (1, 2, 3):
        queue.put(item(5, sequence=sequence))
    assert (queue.queued_steps, queue.queued_bytes, queue.queued_chunks) == (15, 1200, 3)
    assert [taken.chunk.sequence for taken in queue.get()] == [1, 2, 3]
    assert (queue.queued_steps, queue.queued_bytes, queue.queued_chunks) == (0, 0, 0)
    assert queue.get() == []


def test_memory_is_bounded() -> None:
    """Above the capacity there is no room, and putting all the same is an error that changes nothing."""
    queue = TrajectoryQueue(1000)
    queue.put(item(1))
    queue.put(item(1))
    assert not queue.has_room(400)
    with pytest.raises(QueueFullError):
        queue.put(item(1))
    assert queue.queued_bytes == 800


def test_an_empty_queue_takes_a_chunk_of_any_size() -> None:
    """A chunk that unpacks to more than the capacity passes when it is alone."""
    queue = TrajectoryQueue(1000)
    assert queue.has_room(5000)
    queue.put(item(1, resident_bytes=5000))
    assert not queue.has_room(1)


def test_get_waits_for_a_chunk_and_not_longer() -> None:
    """A trainer that waits is woken by the chunk; without one it gets nothing when its time is up."""
    queue = TrajectoryQueue(1000)
    assert queue.get(0.01) == []
    threading.Timer(0.02, lambda: queue.put(item(1))).start()
    assert len(queue.get(30)) == 1


def test_steps_on_their_way_stay_unsettled() -> None:
    """Between taking steps and saying so in the pace, they still count: or credit would be granted twice."""
    queue = TrajectoryQueue(1000)
    queue.put(item(7))
    assert queue.unsettled_steps == 7
    queue.get()
    assert queue.unsettled_steps == 7
    queue.set_pace(Pace(held_steps=7))
    assert queue.unsettled_steps == 7
    queue.set_pace(Pace(held_steps=0))
    assert queue.unsettled_steps == 0


def test_both_sides_are_woken() -> None:
    """A chunk wakes the trainer; room, a pace and a touch wake the service; an equal pace wakes nobody."""
    to_service, to_trainer = Wakeup(), threading.Event()
    queue = TrajectoryQueue(1000, to_service=to_service, to_trainer=to_trainer)
    queue.take_dirty()
    queue.put(item(1))
    assert to_trainer.is_set()
    assert not to_service.wait(0)
    for change in (
        queue.get,
        lambda: queue.set_pace(Pace(hold=HoldReason.UPDATING)),
        queue.touch,
    ):
        to_service.clear()
        change()
        assert to_service.wait(0)
        assert queue.take_dirty()
        assert not queue.take_dirty()
    to_service.clear()
    queue.set_pace(Pace(hold=HoldReason.UPDATING))
    assert not to_service.wait(0)


def test_a_capacity_of_nothing_is_refused() -> None:
    """A queue without room would stop everything; it cannot be made."""
    with pytest.raises(ValueError, match="capacity_bytes"):
        TrajectoryQueue(0)


def test_nothing_is_lost_between_two_threads() -> None:
    """What one thread puts, another takes: each chunk once, in order."""
    queue = TrajectoryQueue(10**9)
    taken: list[int] = []

    def take() -> None:
        while len(taken) < 3000:
            taken.extend(entry.chunk.sequence for entry in queue.get(30))

    taker = threading.Thread(target=take)
    taker.start()
    for sequence in range(3000):
        queue.put(item(1, sequence=sequence, resident_bytes=1))
    taker.join()
    assert taken == list(range(3000))
