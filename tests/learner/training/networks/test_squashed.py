"""Tests policies with squashed actions."""

from __future__ import annotations

import math

import pytest
import torch
from rollcast.enums import Squash

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.heads import LOG_STD_MAX, LOG_STD_MIN
from learner.training.networks.policy import PolicyNetwork, PolicyOutput
from learner.training.networks.squashed import SquashedPolicyNetwork, draw, squash_of, squashed
from tests.learner.training.networks.specs import behavior

SETTINGS = NetworkSettings(hidden_units=8)
SEEN = [torch.randn(6, 4)]


def test_the_deviation_depends_on_what_is_seen_and_stays_within_bounds() -> None:
    """The deviation depends on the observation and its logarithm stays within [-20, 2]."""
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
    """A clamped deviation has no gradient, and the mean has one."""
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
    """A squashed policy names tanh, and every other policy clips."""
    assert squash_of(SquashedPolicyNetwork(behavior(continuous=1), SETTINGS)) is Squash.TANH
    assert squash_of(PolicyNetwork(behavior(continuous=1), SETTINGS)) is Squash.CLIP3_DIV3


@pytest.mark.parametrize("raw", [-30.0, -4.0, 0.0, 4.0, 30.0])
def test_a_saturated_draw_has_a_likelihood_and_a_gradient(raw: float) -> None:
    """Log-probability and gradient are finite where tanh saturates in float32."""
    mean = torch.full((1, 1), raw, requires_grad=True)
    drawn = draw(PolicyOutput(mean, torch.zeros(1, 1), None, None), torch.zeros(1, 1))
    assert drawn.log_prob is not None
    exact = torch.tensor(raw, dtype=torch.float64)
    expected = -0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - exact - torch.nn.functional.softplus(-2 * exact))
    assert drawn.log_prob.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    (slope,) = torch.autograd.grad(drawn.log_prob.sum(), mean)
    assert slope.item() == pytest.approx(2 * math.tanh(raw), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("squash", "expected"), [(Squash.TANH, math.tanh(0.5)), (Squash.CLIP3_DIV3, 0.5 / 3.0)])
def test_draws_become_actions_as_actors_make_them(squash: Squash, expected: float) -> None:
    """Actions are within [-1, 1] for any draw."""
    found = squashed(torch.tensor([[0.5, 100.0, -100.0]]), squash)
    torch.testing.assert_close(found, torch.tensor([[expected, 1.0, -1.0]]))
