"""The ring on the training device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.buffers.columns import RingColumn
from learner.buffers.ring import DeviceRing


def make_ring(capacity_rows: int = 10) -> DeviceRing:
    """A ring with one column."""
    return DeviceRing([RingColumn("value", torch.int64)], capacity_rows, torch.device("cpu"))


def test_blocks_never_wrap() -> None:
    """A block that does not fit behind the last one begins at the start of the storage."""
    ring = make_ring(10)
    assert ring.reserve(4) == 0
    assert ring.reserve(4) == 4
    ring.free_before(4)
    first = ring.reserve(4)
    assert first is not None
    assert ring.place(first) == 0
    assert ring.used_rows == 10  # the two rows at the end are skipped


def test_a_full_ring_says_so() -> None:
    """Without room nothing is reserved and nothing changes; freed rows are room again."""
    ring = make_ring(10)
    assert ring.reserve(6) == 0
    assert ring.reserve(5) is None
    assert ring.used_rows == 6
    ring.free_before(None)
    assert ring.used_rows == 0
    assert ring.reserve(10) is not None


def test_compaction_keeps_the_chosen_rows_in_order() -> None:
    """Kept rows move together at the tail, however they lay before, and the rest is free."""
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
    """Whatever is reserved, freed and compacted, the storage stays where it is."""
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
