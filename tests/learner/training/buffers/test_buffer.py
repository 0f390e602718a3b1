"""Tests the update buffer: what waits, what is taken, and where it lies."""

from __future__ import annotations

import numpy as np
import pytest
import structlog
import torch
from rollcast.enums import SegmentEnd
from rollcast.trajectories import Chunk

from learner.training.buffers.buffer import UpdateBuffer
from learner.training.buffers.columns import on_policy_columns
from learner.training.buffers.layout import segments_of
from tests.learner.training.buffers.chunks import SPEC, make_chunk


def make_buffer(capacity_rows: int = 64, block_rows: int = 16, *, grows: bool = False) -> UpdateBuffer:
    """Returns a buffer on the CPU."""
    return UpdateBuffer(on_policy_columns(SPEC), capacity_rows, block_rows, torch.device("cpu"), grows=grows)


def add(buffer: UpdateBuffer, chunk: Chunk, actor_index: int = 0) -> int:
    """Adds all segments of a chunk."""
    return buffer.add(chunk, segments_of(chunk), np.arange(chunk.segments), actor_index)


def rewards(buffer: UpdateBuffer) -> list[float]:
    """Returns the rewards of the planned steps, which number the steps."""
    found: list[float] = buffer.ring.storage["reward"].index_select(0, buffer.plan().step_rows).tolist()
    return found


def test_segments_are_taken_in_order_until_the_target_is_reached() -> None:
    """An update takes whole segments until it has the target or more; the rest waits."""
    buffer = make_buffer()
    assert add(buffer, make_chunk([3, 4, 3, 2])) == 4
    buffer.take(8)
    assert (buffer.taken_steps, buffer.waiting_steps) == (10, 2)
    buffer.take(8)
    assert buffer.taken_steps == 10
    assert rewards(buffer) == list(range(10))
    assert buffer.settle() == 10
    add(buffer, make_chunk([5, 1], first=12))
    buffer.take(7)
    assert rewards(buffer) == list(range(10, 17)), "exactly the target is enough"


def test_a_plan_says_where_values_bootstrap() -> None:
    """Traces continue inside a segment, bootstrap at a cut or truncation, and end at a terminal step."""
    buffer = make_buffer()
    add(buffer, make_chunk([2, 1, 1], ends=[SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED]))
    buffer.take(100)
    plan = buffer.plan()
    assert plan.is_step.tolist() == [1, 1, 0, 1, 0, 1, 0]
    assert plan.continues.tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert plan.bootstraps.tolist() == [1, 1, 0, 0, 0, 1, 0]
    assert plan.steps.tolist() == [0, 1, 3, 5]
    assert (plan.longest, plan.step_count) == (3, 4)
    finals = buffer.ring.storage["obs/state"].index_select(0, plan.rows)[[2, 4, 6], 0]
    assert finals.tolist() == [-1, -2, -3]


def test_a_step_knows_its_actor() -> None:
    """Each step of a plan has the actor that sent it."""
    buffer = make_buffer()
    add(buffer, make_chunk([2, 1]), actor_index=4)
    add(buffer, make_chunk([1, 2]), actor_index=9)
    buffer.take(100)
    assert [buffer.plan().actor_of(step) for step in range(6)] == [4, 4, 4, 9, 9, 9]


def test_masks_are_reported_only_where_there_were_any() -> None:
    """A plan without masked segments has no masks."""
    buffer = make_buffer()
    add(buffer, make_chunk([2]))
    buffer.take(100)
    assert not buffer.plan().masked
    add(buffer, make_chunk([1], action_mask=np.ones((1, 3), np.uint8)))
    buffer.take(100)
    assert buffer.plan().masked


def test_a_full_ring_takes_what_fits() -> None:
    """A full ring leaves whole segments to the caller and accepts them once rows are freed."""
    buffer = make_buffer(capacity_rows=20, block_rows=8)
    chunk = make_chunk([3] * 6)
    staged = add(buffer, chunk)
    assert staged == 4
    buffer.take(100)
    assert rewards(buffer) == list(range(12))
    buffer.settle()
    assert buffer.add(chunk, segments_of(chunk), np.array([4, 5]), 0) == 2
    buffer.take(100)
    assert rewards(buffer) == [12, 13, 14, 15, 16, 17]


def test_a_ring_grows_while_it_is_in_use() -> None:
    """A ring without a fixed size grows and keeps its content, including wrapped rows."""
    buffer = make_buffer(capacity_rows=20, block_rows=8, grows=True)
    add(buffer, make_chunk([3] * 3))
    buffer.take(100)
    buffer.settle()
    for first in range(100, 400, 6):  # begins amid the ring
        assert add(buffer, make_chunk([1, 2, 3], first=first)) == 3
        buffer.take(20)
    assert rewards(buffer) == list(range(100, 100 + buffer.taken_steps))
    buffer.settle()
    assert buffer.drop_waiting(0) == 0
    begin = 400 - buffer.waiting_steps
    buffer.take(1000)
    assert rewards(buffer) == list(range(begin, 400))
    assert buffer.ring.capacity_rows < 3 * 450


def test_a_ring_that_cannot_grow_takes_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring that cannot grow keeps its size, leaves the rest to the caller, and warns once."""
    buffer = make_buffer(capacity_rows=20, block_rows=8, grows=True)

    def fail(_rows: int) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(buffer.ring, "grow", fail)
    with structlog.testing.capture_logs() as logs:
        assert add(buffer, make_chunk([3] * 6)) == 4
        assert add(buffer, make_chunk([3] * 6)) == 0
    assert [entry["event"] for entry in logs] == ["ring_cannot_grow"]
    buffer.take(100)
    assert rewards(buffer) == list(range(12))


def test_what_is_too_old_for_the_next_version_can_be_taken_too() -> None:
    """Segments are taken in order of arrival, up to the last one that is older than a version."""
    buffer = make_buffer()
    for version in (3, 2, 3, 1, 3):
        add(buffer, make_chunk([2], version=version))
    buffer.take_older(1)
    assert buffer.taken_steps == 0
    buffer.take_older(2)
    assert (buffer.taken_steps, buffer.waiting_steps) == (8, 2)


def test_stale_segments_leave_no_gaps() -> None:
    """Removing stale segments leaves the others unchanged and frees their rows."""
    buffer = make_buffer(capacity_rows=40, block_rows=8)
    for version in range(6):
        add(buffer, make_chunk([2, 1], first=10 * version, version=version % 3))
    assert buffer.drop_waiting(2) == 12
    assert (buffer.waiting_steps, buffer.ring.used_rows) == (6, 10)
    buffer.take(100)
    assert rewards(buffer) == [20, 21, 22, 50, 51, 52]
    assert buffer.drop_waiting(2) == 0


def test_everything_can_be_forgotten() -> None:
    """Clearing returns all steps and frees the ring."""
    buffer = make_buffer()
    add(buffer, make_chunk([3, 4]))
    buffer.take(1)
    assert buffer.clear() == 7
    assert (buffer.taken_steps, buffer.waiting_steps, buffer.ring.used_rows) == (0, 0, 0)


def test_fifty_updates_use_one_storage_and_equal_concatenation() -> None:
    """Over fifty updates every step is returned once, in order and unchanged, without allocations."""
    buffer, rng = make_buffer(capacity_rows=120, block_rows=20), np.random.default_rng(1)
    pointers = {name: tensor.data_ptr() for name, tensor in buffer.ring.storage.items()}
    sent: list[float] = []
    received: list[float] = []
    updates = 0
    while updates < 50:
        lengths = rng.integers(1, 8, size=int(rng.integers(1, 6))).tolist()
        chunk = make_chunk(lengths, first=len(sent))
        assert add(buffer, chunk) == len(lengths)
        sent.extend(chunk.columns["reward"].tolist())
        buffer.take(30)
        if buffer.taken_steps >= 30:
            plan = buffer.plan()
            received.extend(rewards(buffer))
            log_prob = buffer.ring.storage["log_prob"].index_select(0, plan.step_rows)
            assert torch.allclose(-log_prob[:, 0] * 1000, buffer.ring.storage["reward"].index_select(0, plan.step_rows))
            buffer.settle()
            updates += 1
    assert received == sent[: len(received)]
    assert {name: tensor.data_ptr() for name, tensor in buffer.ring.storage.items()} == pointers
