"""Random network distillation."""

from __future__ import annotations

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.rewards.rnd import RNDNetwork
from learner.rewards.transitions import Transitions
from tests.learner.rewards.made import SPECS, learn, rnd, transitions


def textbook(network: RNDNetwork, seen: Transitions) -> torch.Tensor:
    """``||f(s') - target(s')||^2`` of a behavior with one vector, by the formula; tanh everywhere."""
    state = dict(network.named_parameters())

    def net(name: str) -> torch.Tensor:
        values = seen.next_observations[0]
        for layer in ("0", "1"):
            weight, bias = state[f"{name}.layers.linear.{layer}.weight"], state[f"{name}.layers.linear.{layer}.bias"]
            values = (values @ weight.T + bias).tanh()
        return values

    return ((net("predictor") - net("target").detach()) ** 2).sum(1)


def test_loss_and_gradient_are_those_of_the_paper() -> None:
    """The mean squared distance on what was seen after a step, and its gradient, equal a version from the formula."""
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
    """Times the strength, a negative one turns it round; nothing before the first update; ends do not count."""
    spec = SPECS["discrete"]
    signal, seen = rnd(spec, strength=-0.5), transitions(spec)
    assert signal.evaluate(seen).tolist() == [0.0] * 12
    signal.update(seen)
    torch.testing.assert_close(signal.evaluate(seen), -0.5 * textbook(signal.network, seen).detach())
    assert signal.ignores_ends


def test_the_target_stays() -> None:
    """Learning changes the predictor alone; both are drawn apart."""
    signal = rnd(SPECS["discrete"])
    network = signal.network
    pairs = list(zip(network.target.parameters(), network.predictor.parameters(), strict=True))
    assert not any(torch.equal(target, own) for target, own in pairs if target.dim() > 1)
    before = [(target.clone(), own.clone()) for target, own in pairs]
    learn(signal, transitions(SPECS["discrete"]), 3)
    for (target, own), (old_target, old_own) in zip(pairs, before, strict=True):
        assert torch.equal(target, old_target)
        assert not torch.equal(own, old_own)


def test_visits_make_a_place_dull() -> None:
    """The reward of what is seen often falls visit by visit; that of a place far away stays higher."""
    spec = SPECS["discrete"]
    signal = rnd(spec, learning_rate=1e-3)
    known = transitions(spec)
    strange = transitions(spec, next_observations=[known.next_observations[0] + 3.0])
    signal.update(known)
    first = signal.rewards(known).mean()
    means = []
    for _ in range(5):
        learn(signal, known, 60)
        means.append(signal.rewards(known).mean())
    assert means == sorted(means, reverse=True)
    assert means[-1] < 0.1 * first
    assert signal.rewards(strange).mean() > 5 * means[-1]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_behavior_can_have_it(spec: BehaviorSpec) -> None:
    """Two steps change the predictor, and everything stays finite."""
    signal = rnd(spec)
    before = [parameter.clone() for parameter in signal.network.predictor.parameters()]
    learn(signal, transitions(spec), 2)
    assert all(
        not torch.equal(own, old) for own, old in zip(signal.network.predictor.parameters(), before, strict=True)
    )
    assert bool(signal.is_finite())
    assert signal.evaluate(transitions(spec)).isfinite().all()
    assert signal.statistics().keys() == {"Losses/RND Loss"}
