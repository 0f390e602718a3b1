"""The size of the ring."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.buffers.buffer import UpdateBuffer
from learner.buffers.columns import on_policy_columns
from learner.buffers.layout import segments_of
from learner.common.exits import ExitCode, UserError
from learner.sizing.ring_size import ring_size
from tests.learner.buffers.chunks import SPEC, make_chunk

COLUMNS = on_policy_columns(SPEC)
ROW_BYTES = sum(column.row_bytes for column in COLUMNS)


def test_a_ring_that_is_too_small_is_refused_with_the_numbers() -> None:
    """A ring holds at least two buffers, a segment and a chunk."""
    fits = ring_size(ROW_BYTES, ring_steps=2 * 100 + 10 + 30, buffer_size=100, time_horizon=10, chunk_steps=30)
    assert fits.capacity_rows >= 240
    with pytest.raises(UserError, match=r"device_ring_steps is 239; it must be at least 240") as caught:
        ring_size(ROW_BYTES, ring_steps=239, buffer_size=100, time_horizon=10, chunk_steps=30)
    assert caught.value.exit_code is ExitCode.RUN_FILE


def test_a_block_holds_the_longest_segment_however_large_its_rows() -> None:
    """Pictures make blocks small, but never smaller than a segment with its final row."""
    wide = 512 * 512 * 3
    assert ring_size(wide, ring_steps=None, buffer_size=10, time_horizon=1000, chunk_steps=5).block_rows == 1001


@pytest.mark.parametrize("lengths", [[1] * 5, [10], [1, 10, 3]])
@pytest.mark.parametrize("stale_share", [0.0, 0.5])
def test_an_update_always_fits(lengths: list[int], stale_share: float) -> None:
    """With the smallest ring allowed a buffer fills up whatever the segments are: a full ring is a ready one."""
    buffer_size, horizon = 100, 10
    size = ring_size(ROW_BYTES, ring_steps=230, buffer_size=buffer_size, time_horizon=horizon, chunk_steps=20)
    buffer = UpdateBuffer(COLUMNS, size.capacity_rows, size.block_rows, torch.device("cpu"))
    rng = np.random.default_rng(1)
    for version in range(1, 20):
        while buffer.taken_steps <= buffer_size:
            assert add(buffer, lengths, version)
            buffer.take(buffer_size)
        while add(buffer, lengths, version - int(rng.random() < stale_share)):  # actors run ahead until all is full
            pass
        buffer.settle()
        buffer.drop_waiting(version)
        buffer.take(buffer_size)


def add(buffer: UpdateBuffer, lengths: list[int], version: int) -> bool:
    """Adds a chunk; says whether all of it found room."""
    chunk = make_chunk(lengths, version=version)
    return buffer.add(chunk, segments_of(chunk), np.arange(len(lengths)), 0) == len(lengths)
