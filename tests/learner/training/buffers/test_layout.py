"""Tests the layout of flat columns in ring rows."""

from __future__ import annotations

import numpy as np
import pytest
from rollcast.enums import SegmentEnd

from learner.training.buffers.columns import on_policy_columns
from learner.training.buffers.layout import fill, segments_of, spans, split
from tests.learner.training.buffers.chunks import SPEC, make_chunk


def test_spans() -> None:
    """Ranges are concatenated."""
    assert spans(np.array([5, 0, 9]), np.array([2, 3, 1])).tolist() == [5, 6, 0, 1, 2, 9]


def test_segments_know_their_oldest_version() -> None:
    """A segment's version is that of its oldest row."""
    parts = segments_of(make_chunk([2, 3], version=10, offsets=[2, 3, 1, 1, 4]))
    assert parts.versions.tolist() == [12, 13, 11, 11, 14]
    assert parts.oldest.tolist() == [12, 11]
    assert parts.starts.tolist() == [0, 2]
    assert segments_of(make_chunk([2], version=7)).oldest.tolist() == [7]


@pytest.mark.parametrize("block_rows", [2, 4, 5, 8, 100])
def test_runs_fit_their_block(block_rows: int) -> None:
    """Selected segments stay in order, and no run exceeds the block, unless a single segment does."""
    rows = np.array([4, 2, 2, 3, 4, 2])
    chosen = np.array([0, 1, 3, 4, 5])
    runs = list(split(chosen, rows, block_rows))
    assert np.concatenate(runs).tolist() == chosen.tolist()
    assert all(len(run) == 1 or rows[run].sum() <= block_rows for run in runs)
    assert len(runs) == {2: 5, 4: 5, 5: 4, 8: 3, 100: 1}[block_rows]


def test_each_segment_is_followed_by_its_final_row() -> None:
    """A final row follows each segment; its other columns are zero."""
    chunk = make_chunk([2, 1, 2], first=1, version=3, ends=[SegmentEnd.CUT, SegmentEnd.TERMINATED, SegmentEnd.CUT])
    columns = on_policy_columns(SPEC)
    block = {column.name: np.full((6, *column.shape), 77) for column in columns}
    block["obs/state"] = block["obs/state"].astype(np.float32)
    block["reward"] = block["reward"].astype(np.float32)
    fill(block, columns, chunk, segments_of(chunk), np.array([0, 2]))
    assert block["obs/state"][:, 0].tolist() == [1, 2, -2, 4, 5, -5]
    assert block["obs/state"][:, 1].tolist() == [-1, -1, -2, -1, -1, -2]
    assert block["reward"].tolist() == [1, 2, 0, 4, 5, 0]
    assert block["version"].tolist() == [3, 3, 0, 3, 3, 0]
    assert block["discrete_action"][:, 0].tolist() == [1, 2, 0, 1, 2, 0]
    assert block["action_mask"].tolist() == [[1] * 3, [1] * 3, [0] * 3] * 2


def test_rows_of_other_ranks_are_not_written() -> None:
    """A segment of another rank has its place, but nothing is written there, nor read from its part of the chunk."""
    chunk = make_chunk([2, 1, 2], memory=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32))
    columns = on_policy_columns(SPEC, memory_size=2, memory_stride=4)
    block = {column.name: np.full((8, *column.shape), 77) for column in columns}
    fill(block, columns, chunk, segments_of(chunk), np.arange(3), own=np.array([True, False, True]))
    assert block["reward"].tolist() == [0, 1, 0, 77, 77, 3, 4, 0]
    assert block["version"][3:5].tolist() == [77, 77]
    assert block["memory"].tolist() == [[1, 2], [0, 0], [0, 0], [77, 77], [77, 77], [5, 6], [0, 0], [0, 0]]


def test_group_rewards_and_masks_are_taken_over() -> None:
    """A step's reward includes its group reward, and masks are copied."""
    masks = np.array([[1, 0, 1], [0, 1, 1]], np.uint8)
    chunk = make_chunk([2], group_reward=np.array([10.0, 20.0], np.float32), action_mask=masks)
    columns = on_policy_columns(SPEC)
    block = {column.name: np.zeros((3, *column.shape)) for column in columns}
    fill(block, columns, chunk, segments_of(chunk), np.array([0]))
    assert block["reward"].tolist() == [10, 21, 0]
    assert block["action_mask"].tolist() == [*masks.tolist(), [0, 0, 0]]
