"""Tests curiosity."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from learner.training.rewards.curiosity import CuriosityNetwork
from learner.training.rewards.transitions import Transitions
from tests.learner.training.rewards.made import SPECS, curiosity, transitions


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
