"""Tests attention over lists of entities."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from actor_client.envs.spaces import ObservationPlan
from learner.shared.settings.network import NetworkSettings
from learner.training.networks.attention import EntityAttention
from learner.training.networks.initializers import Initializer
from tests.learner.training.networks.specs import entities

SETTINGS = NetworkSettings(hidden_units=16)
LISTS = (entities(), entities("others", (2, 4)))


def make(fixed: int = 6) -> EntityAttention:
    """Returns attention over lists of 5 entities of 3 numbers and 2 of 4."""
    return EntityAttention(LISTS, fixed, "swish", Initializer("orthogonal", torch.Generator().manual_seed(1)))


def numbers(*shape: int, seed: int = 2) -> Tensor:
    """Returns random numbers far from padding."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + 3.0


def close(one: Tensor, other: Tensor) -> bool:
    """Returns whether two results differ by rounding only."""
    return torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_the_order_of_entities_does_not_matter() -> None:
    """The order of entities does not change the summary, and other entities do."""
    attention, fixed = make(), numbers(7, 6)
    one, other = numbers(7, 5, 3), numbers(7, 2, 4)
    found = attention([one, other], fixed)
    assert close(found, attention([one[:, [3, 0, 4, 2, 1]], other[:, [1, 0]]], fixed))
    assert not close(found, attention([one + 1.0, other], fixed))


def test_an_entity_near_zero_matters() -> None:
    """The list of an environment of Gymnasium loses no entity, however small its numbers are."""
    space = gymnasium.spaces.Sequence(gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32), stack=True)
    space.max_length = 5  # type: ignore[attr-defined]
    plan = ObservationPlan(space)
    attention = EntityAttention(plan.specs, 0, "swish", Initializer("orthogonal", torch.Generator().manual_seed(1)))
    far, small = [0.6, 0.5, 0.4], [[0.0, 0.0, 0.0], [0.05, 0.05, 0.05], [0.06, -0.07, 0.01]]
    lists = [np.array(entities, np.float32) for entities in ([far], *([far, each] for each in small))]
    alone, *others = (attention([torch.from_numpy(plan.encode([each])[0])], None) for each in lists)
    assert not any(close(alone, found) for found in others)


def test_padding_does_not_matter() -> None:
    """Padding does not change the summary, wherever it is."""
    attention, fixed, full = make(), numbers(7, 6), numbers(7, 3, 3)
    padded = torch.zeros(7, 5, 3)
    padded[:, [0, 2, 3]] = full
    none = torch.zeros(7, 2, 4)
    found = attention([padded, none], fixed)
    almost = padded.clone()
    almost[:, [1, 4]] = 0.05
    assert close(found, attention([almost, none + 0.04], fixed))
    shorter = EntityAttention((entities(shape=(3, 3)), LISTS[1]), 6, "swish", Initializer("orthogonal"))
    shorter.load_state_dict(attention.state_dict())
    assert close(found, shorter([full, none], fixed))
    seen = padded.clone()
    seen[:, 1] = 0.06
    assert not close(found, attention([seen, none], fixed))


def test_each_entity_knows_the_other_observations() -> None:
    """The summary depends on the other observations, and each row only on its own."""
    attention, fixed = make(), numbers(7, 6)
    lists = [numbers(7, 5, 3), numbers(7, 2, 4)]
    found = attention(lists, fixed)
    changed = fixed.clone()
    changed[3] += 2.0
    differs = (found - attention(lists, changed)).abs().amax(1) > 1e-3
    assert differs.tolist() == [row == 3 for row in range(7)]


@pytest.mark.parametrize("fixed", [0, 6])
def test_nothing_but_padding_is_finite(fixed: int) -> None:
    """Empty lists give zeros, and every gradient is finite."""
    attention = make(fixed)
    lists = [numbers(3, 5, 3), numbers(3, 2, 4)]
    for values in lists:
        values[:2] = 0.0
    rest = numbers(3, fixed).requires_grad_() if fixed else None
    found = attention(lists, rest)
    assert torch.count_nonzero(found[:2]) == 0
    assert torch.isfinite(found).all()
    wanted = list(attention.parameters()) if rest is None else [*attention.parameters(), rest]
    gradients = torch.autograd.grad(found.square().sum(), wanted)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    empty = torch.autograd.grad(attention([values * 0.0 for values in lists], rest).sum(), wanted)
    assert all(torch.count_nonzero(gradient) == 0 for gradient in empty)
