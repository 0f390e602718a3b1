"""Policies whose draws are squashed."""

from __future__ import annotations

import copy

import pytest
import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec

from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    HeadGradients,
    SquashedPolicyNetwork,
    squash_of,
    within_bounds,
)
from learner.settings.network import NetworkSettings
from tests.learner.networks.specs import behavior, vector

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
    assert not within_bounds(log_std).any()


@pytest.mark.parametrize(
    "spec", [behavior(continuous=2), behavior(branches=(3, 2)), behavior(vector(), continuous=1, branches=(3,))]
)
@pytest.mark.parametrize("masked", [False, True])
def test_derivatives_are_autograd_s(spec: BehaviorSpec, *, masked: bool) -> None:
    """From the derivatives of what the heads compute to every parameter."""
    network = SquashedPolicyNetwork(spec, SETTINGS, torch.Generator().manual_seed(3))
    reference = copy.deepcopy(network)
    masks = None
    if masked and spec.action.mask_size:
        masks = torch.ones(6, spec.action.mask_size)
        masks[:, 1] = 0.0
    output = reference(SEEN, masks)
    outer = [None if part is None else torch.randn_like(part) for part in output[:3]]
    total = sum((part * slope).sum() for part, slope in zip(output[:3], outer, strict=True) if part is not None)
    assert isinstance(total, torch.Tensor)
    torch.autograd.backward(total)

    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    to_mean, to_log_std, to_logits = outer
    with torch.no_grad():
        hidden, record = network.body.record(SEEN)
        found = network.act(hidden, masks)
        if to_log_std is not None and found.log_std is not None:
            to_log_std = to_log_std * within_bounds(found.log_std)
        to_scores = None
        if to_logits is not None and found.logits is not None:
            parts = torch.split(to_logits, list(spec.action.discrete_branches), 1)
            sums = torch.cat([part.sum(1, keepdim=True).expand_as(part) for part in parts], 1)
            to_scores = to_logits - found.logits.exp() * sums
        network.body.backward(
            record, network.heads_backward(hidden, HeadGradients(to_mean, to_log_std, to_scores), masks)
        )
    for own, theirs in zip(network.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(own.grad, theirs.grad, rtol=1e-3, atol=1e-5)


def test_the_network_says_how_its_draws_are_squashed() -> None:
    """Its own class says it; every other policy clips."""
    assert squash_of(SquashedPolicyNetwork(behavior(continuous=1), SETTINGS)) is Squash.TANH
    assert squash_of(PolicyNetwork(behavior(continuous=1), SETTINGS)) is Squash.CLIP3_DIV3
