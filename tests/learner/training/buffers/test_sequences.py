"""Tests sequences of segments and minibatches of whole sequences."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.training.buffers.batches import RowSource
from learner.training.buffers.buffer import Place, UpdateBuffer
from learner.training.buffers.columns import MEMORY, on_policy_columns
from learner.training.buffers.layout import segments_of
from learner.training.buffers.sequences import SequenceMinibatches, SequenceTable, cut_segments, pack

from .chunks import SPEC, make_chunk

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=12)


@given(LENGTHS, st.integers(1, 9))
def test_segments_are_cut_from_their_starts(lengths: list[int], stride: int) -> None:
    """A sequence starts every stride steps of a segment, and together they are all steps."""
    cut = cut_segments(np.array(lengths), stride)
    expected = [
        (segment, sum(lengths[:segment]) + begin, min(stride, length - begin))
        for segment, length in enumerate(lengths)
        for begin in range(0, length, stride)
    ]
    assert list(zip(cut.segments.tolist(), cut.starts.tolist(), cut.lengths.tolist(), strict=True)) == expected


@given(LENGTHS, st.integers(1, 9), st.data())
def test_packed_rows_are_step_by_step_longest_first(lengths: list[int], stride: int, data: st.DataObject) -> None:
    """Packed rows are grouped by step, longest sequence first."""
    cut = cut_segments(np.array(lengths), stride)
    chosen = np.array(data.draw(st.permutations(range(len(cut.starts)))))[: data.draw(st.integers(1, len(cut.starts)))]
    found = pack(cut, chosen)
    assert Counter(found.order.tolist()) == Counter(chosen.tolist())
    assert (np.diff(cut.lengths[found.order]) <= 0).all()
    expected = [
        int(cut.starts[sequence]) + place
        for place in range(int(cut.lengths[chosen].max()))
        for sequence in found.order.tolist()
        if cut.lengths[sequence] > place
    ]
    assert found.steps.tolist() == expected
    assert found.batch_sizes.sum() == len(expected)


def minibatches(batch_size: int, seed: int = 1) -> tuple[list[tuple[list[int], list[int], list[float]]], SequenceTable]:
    """Draws an epoch; returns steps, batch sizes and memories of each minibatch, and the table."""
    cut = cut_segments(np.array([10, 3, 8, 1]), 4)  # 3 + 1 + 2 + 1 sequences
    count = len(cut.starts)
    memories = torch.arange(float(count)).unsqueeze(1)
    table = SequenceTable(cut, memories, memories + 100)
    drawing = SequenceMinibatches(batch_size, 4, torch.Generator().manual_seed(seed))
    found = []
    for columns, sequences in drawing.epoch({"step": RowSource(torch.arange(22))}, table):
        assert sequences.critic is not None
        assert torch.equal(sequences.critic, sequences.policy + 100)
        steps, sizes = columns["step"].tolist(), sequences.batch_sizes.tolist()
        found.append((steps, sizes, sequences.policy[:, 0].tolist()))
    return found, table


@pytest.mark.parametrize(("batch_size", "sequences", "count"), [(8, 2, 3), (12, 3, 2), (1, 1, 7), (99, 7, 1)])
def test_minibatches_share_no_sequence(batch_size: int, sequences: int, count: int) -> None:
    """Each minibatch has batch_size // stride sequences with their memories."""
    found, table = minibatches(batch_size)
    assert len(found) == count
    drawn = [int(memory) for _, _, memories in found for memory in memories]
    assert len(set(drawn)) == len(drawn) == sequences * count
    for steps, sizes, memories in found:
        assert sizes[0] == len(memories) == sequences
        starts = [int(table.cut.starts[int(memory)]) for memory in memories]
        assert steps[: len(starts)] == starts
        assert len(steps) == sum(int(table.cut.lengths[int(memory)]) for memory in memories)


def test_minibatches_are_shuffled_by_seed() -> None:
    """Equal seeds give equal orders of minibatches."""
    assert minibatches(8)[0] == minibatches(8)[0]
    assert minibatches(8)[0] != minibatches(8, seed=2)[0]


def test_the_ring_holds_memories_where_sequences_begin() -> None:
    """The ring has a memory at every stride-th row of each segment and zeros elsewhere."""
    columns = on_policy_columns(SPEC, memory_size=2, memory_stride=3)
    buffer = UpdateBuffer(columns, 40, 16, torch.device("cpu"))
    lengths = [4, 3, 7]
    memories = np.arange(1, 13, dtype=np.float32).reshape(6, 2)  # 2 + 1 + 3 of them
    chunk = make_chunk(
        lengths,
        memory=memories,
        env=np.array([0, 1, 1], np.uint32),
        agent=np.array([5, 6, 6], np.uint64),
        episode=np.array([7, 8, 9], np.uint64),
        first_step=np.array([10, 0, 30], np.uint32),
        end=np.array([1, 2, 3], np.uint8),
    )
    assert buffer.add(chunk, segments_of(chunk), np.array([0, 2]), 4) == 2
    buffer.take(100)
    plan = buffer.plan()
    stored = buffer.ring.storage[MEMORY].index_select(0, plan.rows).numpy()
    expected = np.zeros((13, 2), np.float32)
    expected[[0, 3]] = memories[:2]
    expected[[5, 8, 11]] = memories[3:]
    assert np.array_equal(stored, expected)
    assert [segment.place for segment in plan.segments] == [Place(0, 5, 7, 10, True), Place(1, 6, 9, 30, False)]
