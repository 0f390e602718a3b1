"""Tests the pool of snapshots."""

from __future__ import annotations

import pytest

from learner.training.matches.pool import Pool

from .policies import key


def filled(window: int, saved: int) -> Pool:
    """Returns a pool after a number of snapshots."""
    pool = Pool(window)
    for version in range(saved):
        pool.save(key(version), 100 * version)
    return pool


@pytest.mark.parametrize("saved", [0, 1, 3, 4, 11])
def test_the_newest_snapshots_stay(saved: int) -> None:
    """A pool holds the newest snapshots, at most `window`, each in a slot of its own."""
    pool = filled(3, saved)
    assert [each.number for each in pool.snapshots] == list(range(saved))[-3:]
    assert len({pool.slot(each.number) for each in pool.snapshots}) == len(pool) == min(saved, 3)
    assert all(each.key == key(each.number) and each.step == 100 * each.number for each in pool.snapshots)


@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 2), (3, 5)])
def test_a_state_restores_what_fits(before: int, after: int) -> None:
    """A restored pool has the snapshots of the saved one, the newest if its window is smaller, and continues."""
    saved, restored = filled(before, 7), Pool(after)
    restored.load_state_dict(saved.state_dict())
    assert restored.snapshots == saved.snapshots[-after:]
    assert restored.save(key(7), 700).number == 7


def test_lost_policies_leave_the_pool() -> None:
    """Snapshots without a file are removed and returned."""
    pool = filled(3, 3)
    assert [each.number for each in pool.discard_others({key(0), key(2)})] == [1]
    assert [each.number for each in pool.snapshots] == [0, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"saved": -1},
        {"saved": 2},
        {"snapshots": [{"generation": 1, "version": 1, "sha256": "ab", "step": 0, "number": 0}]},
        {"snapshots": [{"generation": 1, "version": 1, "sha256": "0" * 64, "step": 0, "number": 9}]},
        {"snapshots": None},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, object]) -> None:
    """A state with impossible values is refused."""
    state = {**filled(3, 3).state_dict(), **change}
    with pytest.raises((TypeError, ValueError)):
        Pool(3).load_state_dict(state)
