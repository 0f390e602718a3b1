"""Tests the service's end of the queue to a trainer."""

from __future__ import annotations

import pytest
from rollcast.enums import HoldReason
from rollcast.trajectories import Chunk

from learner.link.channel import Link
from learner.link.to_front import Pace
from learner.link.to_trainers import Experience, QueueFull
from learner.service.ingest.queue import UNLIMITED_BYTES, UNLIMITED_STEPS, QueueFullError, TrajectoryQueue


def make_queue(capacity_bytes: int, *, round_actors: int = 0) -> tuple[TrajectoryQueue, Link]:
    """Returns a queue of behavior 3 and the receiver of its chunks."""
    link = Link()
    return TrajectoryQueue(3, capacity_bytes, link.to_trainers.send, round_actors=round_actors), link


def put(
    queue: TrajectoryQueue, rows: int, *, sequence: int = 1, resident_bytes: int = 400, actor_index: int = 2
) -> None:
    """Puts a chunk of some bytes."""
    queue.put(
        Chunk(sequence=sequence, rows=rows),
        session_id="session",
        actor_index=actor_index,
        encoded_bytes=100,
        resident_bytes=resident_bytes,
        received_at=5.0,
        principal="lab",
    )


def test_chunks_are_sent_in_the_order_of_arrival() -> None:
    """Chunks are sent in order, numbered without gaps, with sender and time."""
    queue, link = make_queue(10_000)
    for sequence in (7, 1, 9):
        put(queue, 5, sequence=sequence)
    sent = [message for message in link.to_trainers.receive() if isinstance(message, Experience)]
    assert [(item.sequence, item.chunk.sequence) for item in sent] == [(1, 7), (2, 1), (3, 9)]
    assert {(item.behavior, item.session_id, item.actor_index, item.received_at) for item in sent} == {
        (3, "session", 2, 5.0)
    }


def test_what_was_taken_makes_room_and_nothing_else_does() -> None:
    """Space is freed only when the trainer reports chunks as taken."""
    queue, _ = make_queue(10_000)
    for rows in (5, 6, 7):
        put(queue, rows)
    assert (queue.queued_steps, queue.queued_bytes, queue.queued_chunks) == (18, 1200, 3)
    queue.settle(2, Pace())
    assert (queue.queued_steps, queue.queued_bytes, queue.queued_chunks) == (7, 400, 1)
    queue.settle(2, Pace())
    assert (queue.queued_steps, queue.queued_bytes, queue.queued_chunks) == (7, 400, 1)
    queue.settle(3, Pace())
    assert (queue.queued_steps, queue.queued_bytes, queue.queued_chunks) == (0, 0, 0)


def test_memory_is_bounded() -> None:
    """Without space a chunk is refused, and putting it is an error that changes nothing."""
    queue, link = make_queue(1000)
    put(queue, 1)
    put(queue, 1)
    assert not queue.has_room(400)
    with pytest.raises(QueueFullError):
        put(queue, 1)
    assert (queue.queued_bytes, queue.sequence) == (800, 2)
    assert len(link.to_trainers.receive()) == 2
    queue.settle(1, Pace())
    assert queue.has_room(400)


def test_an_empty_queue_takes_a_chunk_of_any_size() -> None:
    """An empty queue accepts a chunk of any size."""
    queue, _ = make_queue(1000)
    assert queue.has_room(5000)
    put(queue, 1, resident_bytes=5000)
    assert not queue.has_room(1)


def test_principals_share_a_full_queue() -> None:
    """More than half full, each of several principals has its equal share, in bytes and above the limit in steps, too."""
    queue, _ = make_queue(1000)
    queue.settle(0, Pace(ahead_limit_steps=10))
    for each in ("lab", "other"):
        queue.unsettled.members[each] += 1
    put(queue, 8, resident_bytes=300)
    assert not queue.has_room(300, principal="lab"), "the half is full, and it has more than a quarter"
    assert queue.has_room(300, principal="other")
    assert not queue.has_room(800, principal="other"), "nor is there room for all"
    put(queue, 8, resident_bytes=10)
    assert not queue.has_room(10, steps=1, principal="lab")
    assert queue.has_room(10, steps=1, principal="other")
    queue.unsettled.settle(13)
    assert queue.unsettled.total == 3
    assert queue.has_room(10, steps=1, principal="lab")
    del queue.unsettled.members["other"]
    assert queue.has_room(300, steps=30, principal="lab"), "alone, it may fill the queue"


def test_one_principal_has_no_more_steps_than_updates_can_use() -> None:
    """Without competition, too, unsettled steps are limited; a trainer that needs more gets more."""
    link = Link()
    queue = TrajectoryQueue(3, 10_000, link.to_trainers.send, most_steps=50)
    put(queue, 40)
    assert not queue.has_room(400, steps=11, principal="lab")
    assert queue.has_room(400, steps=10, principal="lab")
    queue.settle(0, Pace(ahead_limit_steps=40))
    assert queue.has_room(400, steps=40, principal="lab")


def test_rounds_alone_limit_actors() -> None:
    """In lock-step neither steps, bytes nor holds limit actors."""
    queue, _ = make_queue(1000, round_actors=1)
    queue.settle(0, Pace(owed_steps=5, ahead_limit_steps=10, hold=HoldReason.UPDATING, until_version=3))
    assert queue.pace == Pace(owed_steps=5, ahead_limit_steps=UNLIMITED_STEPS)
    assert (queue.credit_bytes, queue.capacity_bytes) == (UNLIMITED_BYTES, 1000)


def test_a_full_round_names_the_actor_that_takes_most() -> None:
    """Trainers are told which actor takes most of a full round; its bytes make room for the others."""
    queue, link = make_queue(1000, round_actors=2)
    put(queue, 1, resident_bytes=300, actor_index=0)
    put(queue, 1, resident_bytes=650, actor_index=1)
    link.to_trainers.receive()
    assert queue.has_room(300, 0)
    assert link.to_trainers.receive() == [QueueFull(3, 650, 1000, 1)]
    assert (queue.queued_bytes, queue.queued_steps) == (300, 2)
    assert not queue.has_room(900, 1)
    assert link.to_trainers.receive() == [QueueFull(3, 900, 1000, 1)]


def test_trainers_hear_once_that_a_round_has_no_room() -> None:
    """Trainers are notified once if a round exceeds the queue."""
    for round_actors, told in ((1, [QueueFull(3, 800, 1000)]), (0, [])):
        queue, link = make_queue(1000, round_actors=round_actors)
        put(queue, 1)
        put(queue, 1)
        link.to_trainers.receive()
        assert not queue.has_room(400)
        assert not queue.has_room(500)
        assert link.to_trainers.receive() == told
