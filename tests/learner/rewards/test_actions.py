"""Draws as the environment takes them, in torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollcast.enums import Squash
from rollcast.specs import ActionSpec
from rollcast.transforms import ActionTransform

from learner.rewards.actions import ActionNumbers, ContinuousActions

BOUNDS = ((), ((-2.0, 0.0, -1e30), (2.0, 5.0, 1e30)), ((-1.0, -math.inf, 0.0), (1.0, math.inf, 1.0)))
DRAWS = st.lists(st.floats(-50.0, 50.0, width=32), min_size=3, max_size=3)


@pytest.mark.parametrize("squash", [Squash.NONE, Squash.CLIP3_DIV3, Squash.TANH])
@pytest.mark.parametrize("bounds", BOUNDS, ids=["none", "bounded", "unbounded"])
@given(draws=DRAWS)
def test_they_are_what_actors_make_of_them(
    squash: Squash, bounds: tuple[tuple[float, ...], ...], draws: list[float]
) -> None:
    """Torch's transform equals the contract's, which is numpy's, for every squash and bound."""
    low, high = bounds or ((), ())
    raw = np.array([draws], np.float32)
    expected = ActionTransform(squash, low, high).apply(raw)
    found = ContinuousActions(ActionSpec(3, (), low, high), squash).taken(torch.from_numpy(raw))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_what_the_environment_cannot_see_is_cut() -> None:
    """Draws beyond the clip are one action; an axis without bounds passes as it is."""
    draws = torch.tensor([[5.0, 5.0], [3.0, 3.0], [-1.0, -1.0]])
    spec = ActionSpec(2, (), (-1.0, -math.inf), (1.0, math.inf))
    assert ContinuousActions(ActionSpec(2), Squash.CLIP3_DIV3).told_apart(draws).tolist() == [[3, 3], [3, 3], [-1, -1]]
    assert ContinuousActions(spec, Squash.CLIP3_DIV3).told_apart(draws).tolist() == [[3, 5], [3, 3], [-1, -1]]
    assert torch.equal(ContinuousActions(spec, Squash.NONE).told_apart(draws), draws)


def test_choices_become_blocks() -> None:
    """Each branch is a block of zeros with a one; continuous axes stand before them."""
    numbers = ActionNumbers(ActionSpec(1, (3, 2)), Squash.CLIP3_DIV3)
    found = numbers.of(torch.tensor([[0.5], [9.0]]), torch.tensor([[2, 0], [0, 1]]))
    assert found.tolist() == [[0.5, 0, 0, 1, 1, 0], [3.0, 1, 0, 0, 0, 1]]
    assert numbers.size == 6
