"""Tests the count of owed updates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.training.trainers.replay import UpdateDebt


@given(
    steps=st.lists(st.integers(1, 500), min_size=1, max_size=30),
    steps_per_update=st.floats(0.1, 50.0),
    free_steps=st.integers(0, 300),
)
def test_updates_follow_the_steps_exactly(steps: list[int], steps_per_update: float, free_steps: int) -> None:
    """The number of updates follows exactly from the number of steps."""
    debt = UpdateDebt(steps_per_update, free_steps)
    made = total = 0
    for count in steps:
        debt.add(count)
        total += count
        while debt.owed:
            debt.pay()
            made += 1
    assert made == int(max(0, total - free_steps) / steps_per_update + 1e-6)


@pytest.mark.parametrize(("steps_per_update", "expected"), [(0.1, 1000), (1.0, 100), (3.0, 33), (0.7, 142), (30.0, 3)])
def test_a_hundred_steps(steps_per_update: float, expected: int) -> None:
    """Fractions such as 0.1 lose no update."""
    debt = UpdateDebt(steps_per_update, 0)
    for _ in range(100):
        debt.add(1)
    assert debt.owed == expected


def test_a_restart_forgets_no_debt_and_pays_none_twice() -> None:
    """A restart keeps owed updates, and another steps_per_update applies to later steps."""
    debt = UpdateDebt(10.0, 0)
    debt.add(1037)
    debt.pay(100)
    assert debt.owed == 3
    again = UpdateDebt(1.0, 0)
    again.load_state_dict(debt.state_dict())
    assert again.owed == 37
    again.add(5)
    assert again.owed == 42


def test_a_state_that_fits_nothing_is_refused() -> None:
    """An invalid state is refused."""
    with pytest.raises(KeyError):
        UpdateDebt(1.0, 0).load_state_dict({})
