"""Tests the policy network."""

from __future__ import annotations

import pytest
import torch

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.policy import PolicyNetwork
from tests.learner.training.networks.specs import behavior

SETTINGS = NetworkSettings(hidden_units=16)


def test_outputs_of_a_hybrid_behavior() -> None:
    """Continuous axes give mean and deviation, branches normalized log-probabilities."""
    network = PolicyNetwork(behavior(continuous=2, branches=(3, 4)), SETTINGS)
    output = network([torch.randn(5, 4)])
    assert output.mean is not None
    assert output.log_std is not None
    assert output.logits is not None
    assert output.mean.shape == output.log_std.shape == (5, 2)
    assert torch.count_nonzero(output.log_std) == 0
    assert torch.allclose(output.logits[:, :3].exp().sum(1), torch.ones(5))
    assert torch.allclose(output.logits[:, 3:].exp().sum(1), torch.ones(5))
    assert output.recurrent_out is None
    assert network.memory_size == 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bool])
def test_masks_forbid(dtype: torch.dtype) -> None:
    """A masked choice has probability 0, and the others sum to 1."""
    network = PolicyNetwork(behavior(branches=(3, 2)), SETTINGS)
    observation = [torch.randn(2, 4)]
    masks = torch.tensor([[1, 0, 1, 1, 1], [0, 0, 1, 0, 1]]).to(dtype)
    logits = network(observation, masks).logits
    assert logits is not None
    probabilities = logits.exp()
    assert torch.equal(probabilities == 0, masks == 0)
    assert torch.allclose(probabilities[:, :3].sum(1), torch.ones(2))
    free = network(observation).logits
    assert free is not None
    assert torch.allclose(free, network(observation, torch.ones_like(masks)).logits)


def test_a_branch_with_everything_forbidden_is_uniform() -> None:
    """A branch with all choices forbidden is uniform."""
    logits = PolicyNetwork(behavior(branches=(4,)), SETTINGS)([torch.randn(1, 4)], torch.zeros(1, 4)).logits
    assert logits is not None
    assert torch.allclose(logits.exp(), torch.full((1, 4), 0.25))
