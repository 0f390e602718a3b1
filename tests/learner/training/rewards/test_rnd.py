"""Tests random network distillation."""

from __future__ import annotations

import pytest
import torch

from learner.training.rewards.rnd import RNDNetwork
from learner.training.rewards.transitions import Transitions
from tests.learner.training.rewards.made import SPECS, learn, rnd, transitions


def textbook(network: RNDNetwork, seen: Transitions) -> torch.Tensor:
    """Returns ``||f(s') - target(s')||^2`` by the formula, with swish."""
    state = dict(network.named_parameters())

    def net(name: str) -> torch.Tensor:
        values = seen.next_observations[0]
        for layer in ("0", "1"):
            weight, bias = state[f"{name}.layers.linear.{layer}.weight"], state[f"{name}.layers.linear.{layer}.bias"]
            values = torch.nn.functional.silu(values @ weight.T + bias)
        return values

    return ((net("predictor") - net("target").detach()) ** 2).sum(1)


def test_loss_and_gradient_are_those_of_the_paper() -> None:
    """Loss and gradient equal those of the formula."""
    spec = SPECS["discrete"]
    signal, seen = rnd(spec), transitions(spec)
    parameters = list(signal.network.predictor.parameters())
    expected = textbook(signal.network, seen).mean()
    loss, (reported,) = signal.loss(seen)
    assert reported.item() == pytest.approx(expected.item(), rel=1e-5)
    for own, other in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_the_reward_is_the_distance() -> None:
    """The reward is the distance over its deviation so far times strength, 0 before the first update; ends do not count."""
    spec = SPECS["discrete"]
    signal, seen = rnd(spec, strength=-0.5), transitions(spec)
    assert signal.evaluate(seen).tolist() == [0.0] * 12
    learned = textbook(signal.network, seen).detach()
    signal.update(seen)
    spread = torch.cat((learned, torch.zeros(1))).std(correction=0)  # and one row of 0 at the start
    torch.testing.assert_close(signal.evaluate(seen), -0.5 * textbook(signal.network, seen).detach() / spread)
    assert signal.ignores_ends


def test_the_spread_of_errors_is_saved() -> None:
    """Rewards after a restart are those before it."""
    spec = SPECS["discrete"]
    signal, other, seen = rnd(spec), rnd(spec, seed=9), transitions(spec)
    learn(signal, seen, 3)
    other.load_state_dict(signal.state_dict())
    assert torch.equal(other.rewards(seen), signal.rewards(seen))


def test_the_target_stays() -> None:
    """Learning changes only the predictor."""
    signal = rnd(SPECS["discrete"])
    network = signal.network
    pairs = list(zip(network.target.parameters(), network.predictor.parameters(), strict=True))
    assert not any(torch.equal(target, own) for target, own in pairs if target.dim() > 1)
    before = [(target.clone(), own.clone()) for target, own in pairs]
    learn(signal, transitions(SPECS["discrete"]), 3)
    for (target, own), (old_target, old_own) in zip(pairs, before, strict=True):
        assert torch.equal(target, old_target)
        assert not torch.equal(own, old_own)
