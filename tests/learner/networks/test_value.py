"""Critics."""

from __future__ import annotations

import torch

from learner.networks.policy import PolicyNetwork
from learner.networks.value import ActorCritic, build_critic
from learner.settings.network import NetworkSettings
from tests.learner.networks.specs import behavior, vector

SETTINGS = NetworkSettings(hidden_units=16, normalize=True)
SPEC = behavior(vector(), vector("other", 2), branches=(3,))
OBSERVATIONS = [torch.randn(5, 4), torch.randn(5, 2)]


def make(*, shared: bool) -> ActorCritic:
    """Actor and critic with two reward signals."""
    policy = PolicyNetwork(SPEC, SETTINGS)
    return ActorCritic(policy, build_critic(policy, SETTINGS, signals=2, shared=shared))


def test_both_kinds_value_every_signal() -> None:
    """A critic of its own and a shared one give one value a signal, alone and beside the policy's output."""
    for shared in (False, True):
        network = make(shared=shared)
        output, values = network(OBSERVATIONS, None)
        assert output.logits is not None
        assert values.shape == (5, 2)
        assert torch.allclose(values, network.values(OBSERVATIONS), atol=1e-6)


def test_a_shared_critic_adds_a_head_only() -> None:
    """The policy's state is the same with both; the shared critic has no body of its own."""
    apart, shared = make(shared=False), make(shared=True)
    assert apart.policy.state_dict().keys() == shared.policy.state_dict().keys()
    assert [name for name, _ in shared.critic.named_parameters()] == ["values.weight", "values.bias"]
