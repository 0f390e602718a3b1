"""One chunk at a time: placed, checked, booked, queued."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.errors import MalformedChunk, SequenceGap
from rollcast.trajectories import Chunk, encode_chunk

from learner.ingest.intake import ChunkIntake
from learner.ingest.session import ActorSession
from learner.ingest.validate import LARGEST, Rejected, find_excess, judge
from learner.observe.metrics.learner import LearnerMetrics
from tests.learner.ingest.parts import NAME, Parts, make_chunk


class Line:
    """An intake with one session that plays one behavior."""

    def __init__(self, newest_version: int | None = 0) -> None:
        self.parts = Parts()
        self.session: ActorSession = self.parts.open().session
        self.behavior = self.parts.declared(self.session)
        self.session.accounts[0].granted_steps = 1000
        self.intake = ChunkIntake(
            self.parts.behaviors,
            self.parts.sessions,
            self.parts.ledger,
            newest_version=lambda _: newest_version,
            metrics=LearnerMetrics().intake,
        )

    def take(self, chunk: Chunk) -> Rejected | None:
        """Takes a chunk in."""
        message = encode_chunk(chunk)
        examined = self.intake.examine(self.session, message, message.ByteSize())
        return None if examined is None else self.intake.settle(self.session, examined)


def test_accepting_books_everything_at_once() -> None:
    """The ledger, the session and the queue agree after a chunk."""
    line = Line()
    chunk = make_chunk(6, produced_steps=9, discarded={"reset": 2}, agents=3)
    assert line.take(chunk) is None
    account = line.session.accounts[0]
    books = line.parts.ledger.books(NAME)
    assert (line.session.acked_through, account.received_steps, account.produced_steps) == (1, 6, 9)
    assert (account.discarded_steps, account.agents) == (2, 3)
    assert account.received_bytes == encode_chunk(chunk).ByteSize()
    assert (books.received, books.queued, line.behavior.queue.queued_steps) == (6, 6, 6)


def test_arrays_are_views_that_nobody_can_write() -> None:
    """Queued arrays share the received bytes: no copy is made, and nobody can change them."""
    line = Line()
    line.take(make_chunk())
    (item,) = line.behavior.queue.get()
    array = item.chunk.columns["obs/state"]
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_a_chunk_without_rows_is_legal() -> None:
    """Episodes and statistics alone are queued and acked; the books do not move."""
    line = Line()
    chunk = Chunk(sequence=1, generation=0)
    assert line.take(chunk) is None
    assert line.session.acked_through == 1
    assert line.behavior.queue.queued_chunks == 1
    assert line.parts.ledger.books(NAME).received == 0


def test_what_ends_between_look_and_booking_is_not_queued() -> None:
    """A behavior whose training ends while a chunk waits for room refuses it; a chunk booked meanwhile is not again."""
    line = Line()
    message = encode_chunk(make_chunk(3))
    first = line.intake.examine(line.session, message, message.ByteSize())
    second = line.intake.examine(line.session, message, message.ByteSize())
    assert first is not None
    assert second is not None
    line.parts.behaviors.stop_training(line.behavior)
    rejected = line.intake.settle(line.session, first)
    assert rejected is not None
    assert rejected.reason == "not_training"
    assert line.intake.settle(line.session, second) is None
    books = line.parts.ledger.books(NAME)
    assert (books.received, books.duplicate, books.dropped) == (3, 3, {"not_training": 3})


def test_versions_that_do_not_exist_are_malformed() -> None:
    """Rows cannot have acted under a version above the newest published one, by offset either."""
    line = Line(newest_version=4)
    good = make_chunk(3, base_version=3)
    offsets = np.array([0, 1, 1], np.uint32)
    good.columns["version_offset"] = offsets
    good.roles["version_offset"] = good.roles["reward"]
    assert line.take(good) is None
    bad = make_chunk(3, base_version=4, sequence=2)
    bad.columns["version_offset"] = offsets
    bad.roles["version_offset"] = bad.roles["reward"]
    with pytest.raises(MalformedChunk, match="version 5"):
        line.take(bad)


@pytest.mark.parametrize("version", [0, 7, 2**63 + 5, 2**64 - 1])
def test_rows_cannot_act_before_there_is_a_policy(version: int) -> None:
    """Before the first publication there is no version; one beyond what the trainer can hold never reaches it."""
    line = Line(newest_version=None)
    with pytest.raises(MalformedChunk, match=rf"version {version}, and no policy of {NAME}"):
        line.take(make_chunk(3, base_version=version))
    assert line.parts.ledger.books(NAME).received == 0
    assert line.behavior.queue.queued_chunks == 0
    assert line.take(Chunk(sequence=1, generation=1, base_version=version)) is None


def test_the_encoded_size_is_limited() -> None:
    """A chunk above max_chunk_bytes is refused with both sizes."""
    line = Line()
    message = encode_chunk(make_chunk())
    with pytest.raises(MalformedChunk) as caught:
        line.intake.examine(line.session, message, 5 * 2**20)
    assert caught.value.metadata["chunk_bytes"] == str(5 * 2**20)


@given(
    st.lists(
        st.tuples(st.sampled_from(["good", "nan", "old", "again", "gap", "train", "drop", "stop"]), st.integers(1, 9)),
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_books_balance_after_anything(events: list[tuple[str, int]]) -> None:
    """Whatever comes, received = trained + dropped + queued + lost, and the session and the queue agree with it."""
    line = Line()
    line.parts.sessions.generation = 2
    ledger, queue, held = line.parts.ledger, line.behavior.queue, 0
    for event, number in events:
        sequence = line.session.next_sequence
        if event == "train":
            held += sum(item.chunk.rows for item in queue.get())
            part = held // 2
            ledger.trained(NAME, part)
            held -= part
        elif event == "drop":
            part = min(held, number)
            ledger.drop_queued(NAME, "stale", part)
            held -= part
        elif event == "stop":
            line.parts.behaviors.stop_training(line.behavior)
        elif event == "gap":
            with pytest.raises(SequenceGap):
                line.take(make_chunk(number, sequence=sequence + 1, generation=2))
        else:
            chunk = make_chunk(number, sequence=sequence, generation=1 if event == "old" else 2)
            if event == "nan":
                chunk.columns["reward"] = np.full(number, np.nan, np.float32)
            if event == "again" and sequence > 1:
                chunk.sequence = sequence - 1
            line.take(chunk)
        books = ledger.books(NAME)
        assert books.balanced
        assert books.received == line.session.accounts[0].received_steps
        assert books.queued == queue.queued_steps + held


@pytest.mark.parametrize("column", ["reward", "obs/state", "final_obs/state"])
@pytest.mark.parametrize(("value", "is_welcome"), [(LARGEST, True), (-LARGEST, True), (2e15, False), (-3e38, False)])
def test_the_bound(column: str, value: float, is_welcome: bool) -> None:
    """Up to the bound every number is trained on; beyond it the chunk is refused like one with infinite numbers."""
    parts = Parts()
    behavior = parts.declared(parts.open().session)
    chunk = make_chunk(3)
    array = chunk.columns[column].copy()
    array[-1] = value
    chunk.columns[column] = array
    verdict = judge(chunk, behavior, chunk.generation, 0)
    if is_welcome:
        assert verdict is None
        return
    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.steps) == ("not_finite", 3)
    assert f"column {column}, row {len(array) - 1}: a value beyond 1e+15" in verdict.detail


def test_memories_are_bounded_too() -> None:
    """What one client says that it remembered must not end the training of all."""
    chunk = make_chunk(3)
    for value, is_welcome in ((LARGEST, True), (-2e15, False)):
        chunk.columns["memory"] = np.array([[0.0, 1.0], [value, 0.0]], np.float32)
        assert (find_excess(chunk) is None) == is_welcome
