"""Policies whose draws are squashed."""

from __future__ import annotations

import torch
from rollcast.enums import Squash

from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import LOG_STD_MAX, LOG_STD_MIN, SquashedPolicyNetwork, squash_of
from learner.settings.network import NetworkSettings
from tests.learner.networks.specs import behavior

SETTINGS = NetworkSettings(hidden_units=8)
SEEN = [torch.randn(6, 4)]


def test_the_deviation_depends_on_what_is_seen_and_stays_within_bounds() -> None:
    """Two observations have two deviations; none leaves [-20, 2], however large the weights."""
    network = SquashedPolicyNetwork(behavior(continuous=2), SETTINGS)
    with torch.no_grad():
        log_std = network(SEEN).log_std
        assert log_std is not None
        assert not torch.allclose(log_std[0], log_std[1])
        for parameter in network.parameters():
            parameter.mul_(1e6)
        log_std = network(SEEN).log_std
    assert log_std is not None
    assert LOG_STD_MIN <= log_std.min() < log_std.max() <= LOG_STD_MAX


def test_a_deviation_beyond_its_bounds_has_no_gradient() -> None:
    """The clamp cuts it; the mean has one."""
    network = SquashedPolicyNetwork(behavior(continuous=2), SETTINGS)
    assert network.state_gaussian is not None
    with torch.no_grad():
        network.state_gaussian.log_std.bias.copy_(torch.tensor([5.0, -25.0]))
    output = network(SEEN)
    assert output.mean is not None
    assert output.log_std is not None
    torch.autograd.backward((output.mean + output.log_std).sum())
    slopes = [layer.weight.grad for layer in (network.state_gaussian.mean, network.state_gaussian.log_std)]
    assert [slope is not None and bool(slope.any()) for slope in slopes] == [True, False]


def test_the_network_says_how_its_draws_are_squashed() -> None:
    """Its own class says it; every other policy clips."""
    assert squash_of(SquashedPolicyNetwork(behavior(continuous=1), SETTINGS)) is Squash.TANH
    assert squash_of(PolicyNetwork(behavior(continuous=1), SETTINGS)) is Squash.CLIP3_DIV3
