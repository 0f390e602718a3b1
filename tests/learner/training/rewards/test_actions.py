"""Tests the encoding of actions for reward signals."""

from __future__ import annotations

import math

import torch
from rollcast.enums import Squash
from rollcast.specs import ActionSpec

from learner.training.rewards.actions import ActionNumbers


def test_what_the_environment_cannot_see_is_cut() -> None:
    """Actions are clipped, and axes without bounds are unchanged."""
    draws = torch.tensor([[5.0, 5.0], [3.0, 3.0], [-1.0, -1.0]])
    spec = ActionSpec(2, (), (-1.0, -math.inf), (1.0, math.inf))
    assert ActionNumbers(ActionSpec(2), Squash.CLIP3_DIV3).told_apart(draws).tolist() == [[3, 3], [3, 3], [-1, -1]]
    assert ActionNumbers(spec, Squash.CLIP3_DIV3).told_apart(draws).tolist() == [[3, 5], [3, 3], [-1, -1]]
    assert torch.equal(ActionNumbers(spec, Squash.NONE).told_apart(draws), draws)


def test_choices_become_blocks() -> None:
    """Each branch is a one-hot block after the continuous axes."""
    numbers = ActionNumbers(ActionSpec(1, (3, 2)), Squash.CLIP3_DIV3)
    found = numbers.of(torch.tensor([[0.5], [9.0]]), torch.tensor([[2, 0], [0, 1]]))
    assert found.tolist() == [[0.5, 0, 0, 1, 1, 0], [3.0, 1, 0, 0, 0, 1]]
    assert numbers.size == 6
