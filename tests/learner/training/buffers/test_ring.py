"""Tests the ring on the training device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.shared.exits import ExitCode, UserError
from learner.training.buffers.buffer import UpdateBuffer
from learner.training.buffers.columns import RingColumn, on_policy_columns
from learner.training.buffers.layout import segments_of
from learner.training.buffers.ring import DeviceRing, ring_size
from tests.learner.training.buffers.chunks import SPEC, make_chunk


def make_ring(capacity_rows: int = 10) -> DeviceRing:
    """Returns a ring with one column."""
    return DeviceRing([RingColumn("value", torch.int64)], capacity_rows, torch.device("cpu"))


def test_blocks_never_wrap() -> None:
    """A block that does not fit after the last one starts at the beginning of the storage."""
    ring = make_ring(10)
    assert ring.reserve(4) == 0
    assert ring.reserve(4) == 4
    ring.free_before(4)
    first = ring.reserve(4)
    assert first is not None
    assert ring.place(first) == 0
    assert ring.used_rows == 10  # the two rows at the end are skipped


def test_a_full_ring_says_so() -> None:
    """A full ring reserves nothing until rows are freed."""
    ring = make_ring(10)
    assert ring.reserve(6) == 0
    assert ring.reserve(5) is None
    assert ring.used_rows == 6
    ring.free_before(None)
    assert ring.used_rows == 0
    assert ring.reserve(10) is not None


def test_compaction_keeps_the_chosen_rows_in_order() -> None:
    """Compaction moves kept rows to the tail in order and frees the rest."""
    ring = make_ring(10)
    assert ring.reserve(7) == 0
    ring.free_before(5)
    first = ring.reserve(5)
    assert first == 10
    absolute = np.array([5, 6, 10, 11, 12, 13, 14])
    ring.storage["value"][torch.from_numpy(ring.places(absolute))] = torch.from_numpy(absolute)
    kept = np.array([6, 11, 12, 14])
    moved = ring.compact(kept)
    rows = ring.places(np.arange(moved, moved + len(kept)))
    assert ring.storage["value"][torch.from_numpy(rows)].tolist() == kept.tolist()
    assert ring.used_rows == 4


@pytest.mark.parametrize("seed", range(3))
def test_storage_is_allocated_once(seed: int) -> None:
    """The storage is allocated once."""
    ring, rng = make_ring(50), np.random.default_rng(seed)
    pointer = ring.storage["value"].data_ptr()
    rows: list[int] = []
    for _ in range(300):
        count = int(rng.integers(1, 9))
        first = ring.reserve(count)
        if first is not None:
            rows.extend(range(first, first + count))
        elif rng.random() < 0.5:
            rows = rows[len(rows) // 2 :]
            ring.free_before(rows[0])
        else:
            kept = np.array(sorted(rng.choice(rows, len(rows) // 2, replace=False)))
            moved = ring.compact(kept)
            rows = list(range(moved, moved + len(kept)))
        assert ring.used_rows <= 50
        assert len(set(ring.places(np.array(rows)).tolist())) == len(rows)
    assert ring.storage["value"].data_ptr() == pointer


COLUMNS = on_policy_columns(SPEC)
ROW_BYTES = sum(column.row_bytes for column in COLUMNS)


def test_a_ring_that_is_too_small_is_refused_with_the_numbers() -> None:
    """A ring smaller than two buffers, a segment and a chunk is refused with the numbers."""
    fits = ring_size(ROW_BYTES, ring_steps=2 * 100 + 10 + 30, buffer_size=100, time_horizon=10, chunk_steps=30)
    assert fits.capacity_rows >= 240
    with pytest.raises(UserError, match=r"device_ring_steps is 239; it must be at least 240") as caught:
        ring_size(ROW_BYTES, ring_steps=239, buffer_size=100, time_horizon=10, chunk_steps=30)
    assert caught.value.exit_code is ExitCode.RUN_FILE


def test_a_block_holds_the_longest_segment_however_large_its_rows() -> None:
    """A block is never smaller than the longest segment with its final row."""
    wide = 512 * 512 * 3
    assert ring_size(wide, ring_steps=None, buffer_size=10, time_horizon=1000, chunk_steps=5).block_rows == 1001


@pytest.mark.parametrize("lengths", [[1] * 5, [10], [1, 10, 3]])
@pytest.mark.parametrize("stale_share", [0.0, 0.5])
def test_an_update_always_fits(lengths: list[int], stale_share: float) -> None:
    """The smallest allowed ring always holds enough for an update."""
    buffer_size, horizon = 100, 10
    size = ring_size(ROW_BYTES, ring_steps=230, buffer_size=buffer_size, time_horizon=horizon, chunk_steps=20)
    buffer = UpdateBuffer(COLUMNS, size.capacity_rows, size.block_rows, torch.device("cpu"))
    rng = np.random.default_rng(1)
    for version in range(1, 8):
        while buffer.taken_steps < buffer_size:
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
