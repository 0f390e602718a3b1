"""Tests curiosity."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor
from torch.nn.functional import silu

from learner.rewards.curiosity import CuriosityNetwork
from learner.rewards.transitions import Transitions
from tests.learner.networks.specs import behavior, vector
from tests.learner.rewards.made import SPECS, curiosity, learn, transitions


def dense(values: Tensor, state: Mapping[str, Tensor], name: str) -> Tensor:
    """Applies a linear layer by name."""
    return values @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def textbook(network: CuriosityNetwork, seen: Transitions, branches: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Returns forward and inverse loss by the formulas of the paper, with swish."""
    state = dict(network.named_parameters())

    def features(observation: Tensor) -> Tensor:
        hidden = silu(dense(observation, state, "body.layers.linear.0"))
        return silu(dense(hidden, state, "body.layers.linear.1"))

    def model(name: str, values: Tensor) -> Tensor:
        return dense(silu(dense(values, state, f"{name}.hidden.linear.0")), state, f"{name}.out")

    before, after = features(seen.observations[0]), features(seen.next_observations[0])
    parts, axes = [], 0
    if seen.continuous is not None:
        axes = seen.continuous.shape[1]
        parts.append(torch.minimum(torch.maximum(seen.continuous, torch.tensor(-3.0)), torch.tensor(3.0)))
    if seen.discrete is not None:
        parts += [torch.eye(size)[seen.discrete[:, branch]] for branch, size in enumerate(branches)]
    action = torch.cat(parts, 1)
    surprise = model("forecast", torch.cat((before, action), 1)) - after
    forward = (0.5 * (surprise**2).sum(1)).mean()
    guess = model("inverse", torch.cat((before, after), 1))
    inverse = ((guess[:, :axes] - action[:, :axes]) ** 2).sum(1).mean()
    place = axes
    for branch, size in enumerate(branches):
        scores = guess[:, place : place + size]
        chosen = scores.gather(1, seen.discrete[:, branch : branch + 1]).squeeze(1)  # type: ignore[index]
        inverse = inverse - (chosen - torch.log(scores.exp().sum(1))).mean()
        place += size
    return forward, inverse


@pytest.mark.parametrize("kind", ["continuous", "discrete", "branches", "hybrid"])
def test_loss_and_gradient_are_those_of_the_paper(kind: str) -> None:
    """Loss ``10 (0.2 forward + 0.8 inverse)`` and gradient equal those of the formulas."""
    spec = SPECS[kind]
    signal, seen = curiosity(spec), transitions(spec)
    parameters = list(signal.network.parameters())
    forward, inverse = textbook(signal.network, seen, spec.action.discrete_branches)
    expected = 10 * (0.2 * forward + 0.8 * inverse)
    loss, reported = signal.loss(seen)
    assert torch.allclose(loss, expected, rtol=1e-5)
    assert [value.item() for value in reported] == pytest.approx([forward.item(), inverse.item()], rel=1e-5)
    for own, other in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_the_reward_is_the_surprise() -> None:
    """The reward is half the squared distance of features times strength, and 0 before the first update."""
    spec = SPECS["discrete"]
    signal, seen = curiosity(spec, strength=0.02), transitions(spec, batch=1)
    assert signal.evaluate(seen).tolist() == [0.0]
    signal.update(seen)
    forward, _ = textbook(signal.network, seen, spec.action.discrete_branches)
    assert signal.evaluate(seen).item() == pytest.approx(0.02 * forward.item(), rel=1e-4)
    assert signal.ignores_ends


@pytest.mark.parametrize(("strength", "limit"), [(64.0, 1.0), (-64.0, -1.0), (0.0, 0.0)])
def test_the_reward_is_capped(strength: float, limit: float) -> None:
    """The reward is limited to 1, or to -1 with a negative strength."""
    spec = SPECS["discrete"]
    signal, seen = curiosity(spec, strength=strength, learning_rate=0.0), transitions(spec)
    signal.update(seen)
    assert signal.network.errors(seen)[2].min() > 1 / 64
    assert signal.evaluate(seen).tolist() == [limit] * 12


def test_repeated_transitions_become_dull() -> None:
    """The reward of repeated transitions falls, and that of new ones does not."""
    spec = SPECS["hybrid"]
    signal = curiosity(spec, learning_rate=3e-3)
    known, strange = transitions(spec), transitions(spec, seed=6)
    signal.update(known)
    before = signal.rewards(known).mean()
    learn(signal, known, 400)
    assert signal.rewards(known).mean() < 0.1 * before
    assert signal.rewards(strange).mean() > 5 * signal.rewards(known).mean()


def test_the_inverse_model_finds_the_action() -> None:
    """If actions move the observation, the inverse loss falls far below chance, also on new steps."""
    spec = behavior(vector(size=4), branches=(4,))
    signal = curiosity(spec, learning_rate=3e-3)

    def moved(seed: int) -> Transitions:
        seen = transitions(spec, 256, seed)
        if seen.discrete is None:
            raise TypeError
        after = seen.observations[0] + torch.nn.functional.one_hot(seen.discrete[:, 0], 4)
        return transitions(spec, 256, seed, next_observations=[after])

    for seed in range(300):
        signal.update(moved(seed))
    _, (_, inverse) = signal.loss(moved(1000))
    assert inverse.item() < 0.2  # a guess has ln 4 = 1.39


def test_draws_beyond_the_clip_are_one_action() -> None:
    """Actions beyond the clip are equal for both models."""
    spec = behavior(continuous=2)
    signal = curiosity(spec)
    near = transitions(spec, continuous=torch.full((12, 2), 3.0))
    far = transitions(spec, continuous=torch.full((12, 2), 30.0))
    assert torch.equal(signal.loss(near)[0], signal.loss(far)[0])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_behavior_can_be_curious(spec: BehaviorSpec) -> None:
    """For every behavior two steps change every parameter and stay finite."""
    signal = curiosity(spec)
    before = [parameter.clone() for parameter in signal.network.parameters()]
    learn(signal, transitions(spec), 2)
    changed = [not torch.equal(own, old) for own, old in zip(signal.network.parameters(), before, strict=True)]
    assert all(changed)
    assert bool(signal.is_finite())
    assert signal.evaluate(transitions(spec)).isfinite().all()
    assert signal.statistics().keys() == {"Losses/Curiosity Forward Loss", "Losses/Curiosity Inverse Loss"}
