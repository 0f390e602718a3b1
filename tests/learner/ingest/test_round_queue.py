"""The queue of lock-step gives a trainer nothing before the round is complete, and then all of it, in order."""

from __future__ import annotations

import threading

from rollcast.enums import HoldReason

from learner.ingest.round_queue import UNLIMITED_BYTES, UNLIMITED_STEPS, RoundQueue
from learner.link.experience import Pace
from tests.learner.ingest.parts import make_chunk
from tests.learner.ingest.test_round_order import queued


def test_nothing_comes_out_before_a_release() -> None:
    """What waits is counted as waiting; a release hands it out once, sorted by actor."""
    queue = RoundQueue(10**6)
    queue.put(queued(make_chunk(3), actor=1, session="b"))
    queue.put(queued(make_chunk(2), actor=0, session="a"))
    assert queue.get(timeout_seconds=10.0) == []
    assert (queue.queued_steps, queue.unsettled_steps) == (5, 5)

    released = queue.release({"a", "b"})
    assert released.strangers == ()
    assert queue.has_released
    assert (queue.queued_steps, queue.unsettled_steps) == (0, 5), "they are on their way, and not settled"
    assert [(item.actor_index, item.chunk.rows) for item in queue.get()] == [(0, 2), (1, 3)]
    assert not queue.has_released
    assert queue.get() == []


def test_the_end_of_a_round_is_known_when_the_trainer_is_woken() -> None:
    """The word of each session is kept until the round is released without it."""
    event = threading.Event()
    queue = RoundQueue(10**6, to_trainer=event)
    queue.put(queued(make_chunk(3), session="a"))
    assert queue.ended == {}
    event.clear()
    for session in ("a", "gone"):
        queue.put(queued(make_chunk(1, sequence=2, lockstep_round=7), session=session))
    assert event.is_set()
    assert queue.ended == {"a": 7, "gone": 7}
    queue.release({"a"})
    assert queue.ended == {"a": 7}


def test_steps_of_strangers_are_handed_over_apart() -> None:
    """Who does not play the round trains nothing: the caller says what becomes of it."""
    queue = RoundQueue(10**6)
    queue.put(queued(make_chunk(3), session="stranger"))
    queue.put(queued(make_chunk(2), session="player"))
    released = queue.release({"player"})
    assert [item.chunk.rows for item in released.items] == [2]
    assert [item.chunk.rows for item in released.strangers] == [3]
    assert [item.chunk.rows for item in queue.get()] == [2]


def test_the_end_of_training_empties_it() -> None:
    """What was released and not taken, and what waits for its round, come out together."""
    queue = RoundQueue(10**6)
    queue.put(queued(make_chunk(3), session="a"))
    queue.release({"a"})
    queue.put(queued(make_chunk(2, sequence=2), session="a"))
    assert sum(item.chunk.rows for item in queue.drain()) == 5
    assert queue.drain() == []


def test_rounds_alone_limit_actors() -> None:
    """A trainer's limits would keep a round from ending: neither steps nor bytes nor holds bind."""
    queue = RoundQueue(1000)
    queue.set_pace(Pace(held_steps=5, ahead_limit_steps=10, hold=HoldReason.UPDATING, until_version=3))
    assert queue.pace == Pace(held_steps=5, ahead_limit_steps=UNLIMITED_STEPS)
    assert queue.credit_bytes == UNLIMITED_BYTES
    assert queue.capacity_bytes == 1000
