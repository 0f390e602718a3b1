"""Tests critics."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.value import ActorCritic, build_critic
from tests.learner.installed import install
from tests.learner.training.networks.specs import behavior, image, vector

DRAWN = """
from torch import nn

class Kept(nn.Module):
    def __init__(self, spec, size, initializer):
        super().__init__()
        self.dense = initializer.linear(spec.size, size, 1.0).requires_grad_(False)

    def forward(self, observation):
        return self.dense(observation.float().flatten(1))

class Buffered(nn.Module):
    def __init__(self, spec, size, initializer):
        super().__init__()
        self.register_buffer("weights", initializer.linear(spec.size, size, 1.0).weight.detach())

    def forward(self, observation):
        return observation.float().flatten(1) @ self.weights.t()
"""


@pytest.mark.parametrize("kind", ["parameters", "buffer"])
def test_a_critic_is_trained_on_what_it_values_where_encoders_were_drawn(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A critic with drawn features uses its own, alone and with the policy."""
    points = {"rollcast.encoders": {"parameters": "drawn_features:Kept", "buffer": "drawn_features:Buffered"}}
    monkeypatch.syspath_prepend(install(tmp_path, "drawn_features", DRAWN, points))
    spec = behavior(image(shape=(8, 8, 3)), vector(), branches=(3,))
    settings = NetworkSettings(hidden_units=16, vis_encode_type=kind)
    policy = PolicyNetwork(spec, settings)
    network = ActorCritic(policy, build_critic(policy, settings, signals=1, shared=False))
    observations = [torch.randint(0, 256, (5, 8, 8, 3), dtype=torch.uint8), torch.randn(5, 4)]
    assert torch.allclose(network(observations, None)[1], network.values(observations), atol=1e-6)
