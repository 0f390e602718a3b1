"""Tests random network distillation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.rewards.curiosity import CuriosityReward
from learner.rewards.rnd import RNDNetwork, RNDReward
from learner.rewards.transitions import Transitions
from learner.settings.rewards import FeatureSettings
from tests.learner.rewards.made import SPECS, curiosity, learn, rnd, transitions


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


def test_rewards_do_not_depend_on_the_scale_of_errors() -> None:
    """A strength means the same for narrow and wide networks."""
    spec, means = SPECS["discrete"], []
    for units in (4, 256):
        signal = rnd(spec, network_settings=FeatureSettings(hidden_units=units), learning_rate=0.0)
        for seed in range(20):
            signal.update(transitions(spec, 64, seed))
        rewards = signal.rewards(transitions(spec, 512, 77))
        means.append(float(rewards.detach().std()))
    assert means == pytest.approx([1.0, 1.0], rel=0.3)


@pytest.mark.parametrize("make", [rnd, curiosity])
def test_large_observations_are_told_apart(make: Callable[..., RNDReward | CuriosityReward]) -> None:
    """Observations of the size of 100, not normalized: with tanh, features were all -1 or 1 and unseen ones no surprise."""
    spec = SPECS["discrete"]
    signal = make(spec, learning_rate=1e-3, strength=1e-6)
    known = transitions(spec, 256)
    before, after = ([100.0 * each for each in part] for part in (known.observations, known.next_observations))
    known = replace(known, observations=before, next_observations=after)
    learn(signal, known, 300)
    strange = replace(known, next_observations=[-3.0 * each for each in after])
    with torch.no_grad():
        seen, unseen = (float(signal.rewards(each).mean()) for each in (known, strange))
    assert unseen > 3 * seen


def test_the_spread_of_errors_is_saved() -> None:
    """Rewards after a restart are those before it; a state without it is one of before."""
    spec = SPECS["discrete"]
    signal, other, seen = rnd(spec), rnd(spec, seed=9), transitions(spec)
    learn(signal, seen, 3)
    state = signal.state_dict()
    other.load_state_dict(state)
    assert torch.equal(other.rewards(seen), signal.rewards(seen))
    del state["errors"]
    rnd(spec).load_state_dict(state)


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


def test_visits_make_a_place_dull() -> None:
    """The reward of frequent observations falls, and that of distant ones stays higher."""
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
    """For every behavior two steps change the predictor and stay finite."""
    signal = rnd(spec)
    before = [parameter.clone() for parameter in signal.network.predictor.parameters()]
    learn(signal, transitions(spec), 2)
    assert all(
        not torch.equal(own, old) for own, old in zip(signal.network.predictor.parameters(), before, strict=True)
    )
    assert bool(signal.is_finite())
    assert signal.evaluate(transitions(spec)).isfinite().all()
    assert signal.statistics().keys() == {"Losses/RND Loss"}
