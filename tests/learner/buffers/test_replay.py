"""Replay memory: what stays, what goes, what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.enums import SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk

from learner.buffers.columns import ACTION_MASK, REWARD, TERMINATED
from learner.buffers.layout import segments_of
from learner.buffers.replay import ReplayMemory, ReplaySize, replay_columns, replay_row_bytes, replay_size
from tests.learner.buffers.chunks import SPEC, make_chunk


def memory_of(capacity_steps: int, horizon: int = 8, seed: int = 0) -> ReplayMemory:
    """A memory for the behavior of `make_chunk`."""
    size = replay_size(replay_row_bytes(SPEC), buffer_size=capacity_steps, time_horizon=horizon)
    return ReplayMemory(SPEC, size, torch.device("cpu"), torch.Generator().manual_seed(seed))


def add(memory: ReplayMemory, chunk: Chunk) -> torch.Tensor:
    """Takes in every segment of a chunk."""
    parts = segments_of(chunk)
    return memory.add(chunk, parts, np.arange(len(parts.lengths)))


def held(memory: ReplayMemory) -> list[int]:
    """The numbers of the steps in it (their rewards), found by drawing often."""
    rows = memory.draw(50 * max(1, memory.steps)).rows
    return sorted(set(memory.storage[REWARD].index_select(0, rows).int().tolist()))


def test_each_step_is_followed_by_what_was_seen_after_it() -> None:
    """In a segment that is the next step's observation, at its end the final one; a terminal end is marked."""
    memory = memory_of(100)
    ends = [SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED]
    places = add(memory, make_chunk([2, 3, 1], ends=ends))
    state = memory.storage["obs/state"]
    assert state[places, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert state[places + 1, 0].tolist() == [1, -1, 3, 4, -4, -5]
    assert memory.storage[TERMINATED][places].tolist() == [0, 0, 0, 0, 1, 0]
    assert memory.steps == 6


def test_draws_are_uniform_and_repeat_under_the_same_seed() -> None:
    """Each of 40 steps is drawn about as often; equal generators draw equal steps."""
    memory, twin = memory_of(100), memory_of(100)
    for each in (memory, twin):
        add(each, make_chunk([8] * 5))
    rows = memory.draw(40_000).rows
    assert torch.equal(rows, twin.draw(40_000).rows)
    counts = np.bincount(memory.storage[REWARD].index_select(0, rows).int().numpy(), minlength=40)
    assert counts.min() > 800
    assert counts.max() < 1200
    assert memory.counters.drawn == 40_000


def test_the_oldest_steps_make_room_one_by_one() -> None:
    """A full memory holds exactly the newest steps, in the middle of a segment, too, however often it wraps."""
    memory = memory_of(20)
    first = 0
    for lengths in ([8, 5], [8, 8], [3, 1, 1], [8, 8, 7], [2]) * 4:
        add(memory, make_chunk(lengths, first=first))
        first += sum(lengths)
        expected = list(range(max(0, first - 20), first))
        assert held(memory) == expected
        assert memory.steps == len(expected)
    assert memory.counters.added == first
    assert memory.counters.evicted == first - 20


@settings(max_examples=40, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=20),
    capacity=st.integers(1, 40),
)
def test_whatever_comes_the_newest_steps_are_there(chunks: list[list[int]], capacity: int) -> None:
    """Never more than the capacity; the newest without a gap; with segments of four steps or more all that fit."""
    memory = memory_of(capacity)
    first = 0
    for lengths in chunks:
        add(memory, make_chunk(lengths, first=first))
        first += sum(lengths)
        assert 0 < memory.steps <= capacity
        assert held(memory) == list(range(first - memory.steps, first))
        places = memory.draw(30)
        state = memory.storage["obs/state"]
        now, after = state[places.rows, 0], state[places.next_rows, 0]
        assert ((after == now + 1) | (after == -now)).all()
    if all(length >= 4 for lengths in chunks for length in lengths):
        assert memory.steps == min(capacity, first)
    counters = memory.counters
    assert counters.added == first == counters.evicted + memory.steps


def test_steps_that_go_undrawn_are_counted() -> None:
    """Of 20 evicted steps those count that no draw had touched."""
    memory = memory_of(20)
    add(memory, make_chunk([8, 8, 4]))
    drawn = torch.unique(memory.draw(10).rows).numel()
    add(memory, make_chunk([8, 8, 4], first=20))
    assert memory.counters.evicted == 20
    assert int(memory.evicted_undrawn) == 20 - drawn
    add(memory, make_chunk([8, 8, 4], first=40))
    assert int(memory.evicted_undrawn) == 40 - drawn


def test_what_may_be_done_next_is_kept_too() -> None:
    """Masks stand in the rows behind segments; without any, everything is allowed."""
    memory = memory_of(50)
    masks = np.array([[1, 0, 1], [0, 1, 1]], np.uint8)
    final = np.array([[1, 1, 0]], np.uint8)
    add(memory, make_chunk([2]))
    assert not memory.masked
    places = add(memory, make_chunk([2], action_mask=masks, final_action_mask=final))
    assert memory.masked
    stored = memory.storage[ACTION_MASK]
    assert stored[places].tolist() == masks.tolist()
    assert stored[places[-1] + 1].tolist() == final[0].tolist()
    assert stored[:3].all()


def test_a_cleared_memory_is_empty_and_usable() -> None:
    """What comes afterwards is all there is."""
    memory = memory_of(20)
    add(memory, make_chunk([8, 8]))
    memory.clear()
    assert memory.steps == 0
    add(memory, make_chunk([3], first=100))
    assert held(memory) == [100, 101, 102]


_ACTIONS: list[tuple[int, tuple[int, ...]]] = [(2, ()), (0, (3, 2)), (1, (4,))]


@pytest.mark.parametrize(("axes", "branches"), _ACTIONS)
def test_the_size_of_a_row_is_known_beforehand(axes: int, branches: tuple[int, ...]) -> None:
    """The check of a declaration counts what the columns and tables take."""
    seen: tuple[Any, ...] = (
        ObservationSpec("pixels", np.dtype(np.uint8), (4, 4, 3)),
        ObservationSpec("state", np.dtype(np.float64), (5,)),
    )
    spec = BehaviorSpec("Test", seen, ActionSpec(axes, branches))
    assert replay_row_bytes(spec) == sum(column.row_bytes for column in replay_columns(spec)) + 8 + 1


def test_sizes_follow_from_the_run_file() -> None:
    """Rows for every step, for what was seen after segments of at least four, and for two blocks."""
    assert replay_size(100, buffer_size=50_000, time_horizon=64) == ReplaySize(50_000, 50_000 + 12_500 + 2 * 4096, 4096)
    assert replay_size(100, buffer_size=100, time_horizon=1000) == ReplaySize(100, 100 + 25 + 2 * 1001, 1001)
    assert replay_size(2**20, buffer_size=100, time_horizon=2).block_rows == 8
