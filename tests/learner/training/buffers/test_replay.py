"""Tests what the replay memory keeps, evicts and draws."""

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

from learner.training.buffers.columns import ACTION_MASK, REWARD, TERMINATED
from learner.training.buffers.layout import segments_of
from learner.training.buffers.replay import ReplayMemory, ReplaySize, replay_columns, replay_row_bytes, replay_size
from tests.learner.training.buffers.chunks import SPEC, make_chunk


def memory_of(capacity_steps: int, horizon: int = 8, seed: int = 0) -> ReplayMemory:
    """Returns a memory for the behavior of `make_chunk`."""
    size = replay_size(replay_row_bytes(SPEC), buffer_size=capacity_steps, time_horizon=horizon)
    return ReplayMemory(SPEC, size, torch.device("cpu"), torch.Generator().manual_seed(seed))


def add(memory: ReplayMemory, chunk: Chunk) -> torch.Tensor:
    """Takes in every segment of a chunk."""
    parts = segments_of(chunk)
    return memory.add(chunk, parts, np.arange(len(parts.lengths)))


def held(memory: ReplayMemory) -> list[int]:
    """Returns the numbers (rewards) of the steps in a memory, by many draws."""
    rows = memory.draw(50 * max(1, memory.steps)).rows
    return sorted(set(memory.storage[REWARD].index_select(0, rows).int().tolist()))


def test_each_step_is_followed_by_what_was_seen_after_it() -> None:
    """Each step has its next observation, the final one at the end of a segment, and its terminal flag."""
    memory = memory_of(100)
    ends = [SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED]
    places = add(memory, make_chunk([2, 3, 1], ends=ends))
    state = memory.storage["obs/state"]
    assert state[places, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert state[places + 1, 0].tolist() == [1, -1, 3, 4, -4, -5]
    assert memory.storage[TERMINATED][places].tolist() == [0, 0, 0, 0, 1, 0]
    assert memory.steps == 6


def test_draws_are_uniform_and_repeat_under_the_same_seed() -> None:
    """Draws are uniform, and equal generators draw equal steps."""
    memory, twin = memory_of(100), memory_of(100)
    for each in (memory, twin):
        add(each, make_chunk([8] * 5))
    rows = memory.draw(40_000).rows
    assert torch.equal(rows, twin.draw(40_000).rows)
    counts = np.bincount(memory.storage[REWARD].index_select(0, rows).int().numpy(), minlength=40)
    assert counts.min() > 800
    assert counts.max() < 1200
    assert memory.counters.drawn == 40_000


@settings(max_examples=40, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=20),
    capacity=st.integers(1, 40),
)
def test_whatever_comes_the_newest_steps_are_there(chunks: list[list[int]], capacity: int) -> None:
    """A memory holds the newest steps without a gap and never more than its capacity."""
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
    """Evicted steps that were never drawn are counted."""
    memory = memory_of(20)
    add(memory, make_chunk([8, 8, 4]))
    drawn = torch.unique(memory.draw(10).rows).numel()
    add(memory, make_chunk([8, 8, 4], first=20))
    assert memory.counters.evicted == 20
    assert int(memory.evicted_undrawn) == 20 - drawn
    add(memory, make_chunk([8, 8, 4], first=40))
    assert int(memory.evicted_undrawn) == 40 - drawn


def test_what_may_be_done_next_is_kept_too() -> None:
    """Masks are kept for the next observation; without any, everything is allowed."""
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
    """A cleared memory is empty and can be used."""
    memory = memory_of(20)
    add(memory, make_chunk([8, 8]))
    memory.clear()
    assert memory.steps == 0
    add(memory, make_chunk([3], first=100))
    assert held(memory) == [100, 101, 102]


_ACTIONS: list[tuple[int, tuple[int, ...]]] = [(2, ()), (0, (3, 2)), (1, (4,))]


@pytest.mark.parametrize("memory_size", [0, 6])
@pytest.mark.parametrize(("axes", "branches"), _ACTIONS)
def test_the_size_of_a_row_is_known_beforehand(axes: int, branches: tuple[int, ...], memory_size: int) -> None:
    """The estimated size of a row equals its actual size."""
    seen: tuple[Any, ...] = (
        ObservationSpec("pixels", np.dtype(np.uint8), (4, 4, 3)),
        ObservationSpec("state", np.dtype(np.float64), (5,)),
    )
    spec = BehaviorSpec("Test", seen, ActionSpec(axes, branches))
    columns = replay_columns(spec, memory_size=memory_size, memory_stride=4 if memory_size else 0)
    assert replay_row_bytes(spec, memory_size) == sum(column.row_bytes for column in columns) + 8 + 1


def test_sizes_follow_from_the_run_file() -> None:
    """Sizes follow from the run file: steps, final rows of segments of at least four steps, and two blocks."""
    assert replay_size(100, buffer_size=50_000, time_horizon=64) == ReplaySize(50_000, 50_000 + 12_500 + 2 * 4096, 4096)
    assert replay_size(100, buffer_size=100, time_horizon=1000) == ReplaySize(100, 100 + 25 + 2 * 1001, 1001)
    assert replay_size(2**20, buffer_size=100, time_horizon=2).block_rows == 8


def starts_of(memory: ReplayMemory) -> list[int]:
    """Returns the numbers of the steps from which episodes begin, by many draws."""
    places = memory.draw_starts(2000, torch.Generator().manual_seed(1))
    counts = np.bincount(memory.storage[REWARD].index_select(0, places).int().numpy())
    found = np.flatnonzero(counts)
    assert counts[found].min() > 1000 / len(found)
    return [int(step) for step in found]


def test_beginnings_of_episodes_are_drawn_uniformly() -> None:
    """Only first steps of episodes are drawn, as long as the memory holds them; then any steps are."""
    memory = memory_of(20)
    add(memory, make_chunk([3, 2, 4], first_step=np.array([0, 5, 0], np.uint32)))
    assert starts_of(memory) == [0, 5]
    add(memory, make_chunk([8, 7], first=9, first_step=np.array([0, 8], np.uint32)))
    assert memory.steps == 20
    assert starts_of(memory) == [5, 9]
    add(memory, make_chunk([8, 8], first=24, first_step=np.array([9, 20], np.uint32)))
    assert starts_of(memory) == list(range(20, 40))
    memory.clear()
    add(memory, make_chunk([2], first=40))
    assert starts_of(memory) == [40]
