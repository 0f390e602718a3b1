"""Compares the losses of SAC and their gradients with the formulas."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal
from torch.distributions.transforms import TanhTransform

from learner.training.networks.heads import LOG_STD_MAX
from learner.training.networks.policy import PolicyOutput
from learner.training.networks.squashed import Draw, draw
from learner.training.networks.twin import values_of_actions
from learner.training.trainers.sac.loss import (
    Alphas,
    Entropies,
    critic_loss,
    mean_entropies,
    policy_loss,
    soft_values,
    temperature_loss,
)

STEPS, SIGNALS, AXES = 7, 3, 2
KINDS = [(AXES, ()), (0, (3,)), (0, (3, 2)), (AXES, (4,)), (AXES, (3, 2))]


class Case(NamedTuple):
    """A policy's parameters with gradients, and what depends on the kind of action.

    Attributes:
        axes: Number of continuous axes.
        branches: Number of choices of each branch.
        mean, log_std: ``[B, n]``, scores ``[B, A]`` before normalization.
        noise: ``[B, n]``.
        temperatures: Of the continuous action, and of each branch.
        weights: Of a critic that is not linear in the actions, ``[2, n, K * A]``.
        base: Its values where the actions are zero, ``[2, B, K, A]``.
    """

    axes: int
    branches: tuple[int, ...]
    mean: Tensor
    log_std: Tensor
    scores: Tensor
    noise: Tensor
    temperatures: tuple[float, tuple[float, ...]]
    weights: Tensor
    base: Tensor

    def output(self) -> PolicyOutput:
        """Returns the output of the policy network."""
        parts = torch.split(self.scores, list(self.branches), 1) if self.branches else ()
        logits = torch.cat([part.log_softmax(1) for part in parts], 1) if parts else None
        bounded = self.log_std.clamp(-20.0, LOG_STD_MAX)
        return PolicyOutput(self.mean if self.axes else None, bounded if self.axes else None, logits, None)

    def drawn(self) -> Draw:
        """Returns its actions."""
        return draw(self.output(), self.noise if self.axes else None)

    def alphas(self) -> Alphas:
        """Returns the temperatures of all choices."""
        continuous, discrete = self.temperatures
        spread = [alpha for alpha, size in zip(discrete, self.branches, strict=True) for _ in range(size)]
        return Alphas(torch.tensor(continuous) if self.axes else None, torch.tensor(spread) if self.branches else None)

    def values(self, actions: Tensor | None) -> Tensor:
        """Returns twin critics ``[2, B, K, A]`` of continuous actions."""
        if actions is None:
            return self.base
        return self.base + torch.sin(torch.einsum("bn,tno->tbo", actions, self.weights)).view_as(self.base)


def make(axes: int, branches: tuple[int, ...], seed: int = 0) -> Case:
    """Returns a random case."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    choices = sum(branches) or 1
    return Case(
        axes,
        branches,
        normal(STEPS, axes).requires_grad_(),
        normal(STEPS, axes).requires_grad_(),
        normal(STEPS, sum(branches)).requires_grad_(),
        normal(STEPS, axes),
        (0.3, tuple(0.1 * (index + 1) for index in range(len(branches)))),
        normal(2, axes, SIGNALS * choices),
        normal(2, STEPS, SIGNALS, choices),
    )


def textbook(case: Case) -> tuple[Tensor, Tensor]:
    """Returns soft values ``[B, K]`` by torch's distributions, and the log-probability ``[B]``."""
    actions, log_prob = None, torch.zeros(STEPS)
    if case.axes:
        normal = Normal(case.mean, case.log_std.clamp(-20.0, LOG_STD_MAX).exp())
        raw = normal.mean + normal.stddev * case.noise
        actions = torch.tanh(raw)
        # The density of a function of a random variable; torch's TransformedDistribution loses it where tanh saturates.
        slope = TanhTransform().log_abs_det_jacobian(raw, actions)
        log_prob = (normal.log_prob(raw) - slope).sum(1)
    smaller = case.values(actions).amin(0)
    if not case.branches:
        return smaller.squeeze(2) - case.temperatures[0] * log_prob.unsqueeze(1), log_prob
    found, begin = torch.zeros(STEPS, SIGNALS), 0
    for alpha, size in zip(case.temperatures[1], case.branches, strict=True):
        policy = Categorical(logits=case.scores[:, begin : begin + size])
        for choice in range(size):
            probability = policy.probs[:, choice].unsqueeze(1)
            found = found + probability * (smaller[:, :, begin + choice] - alpha * probability.log())
        begin += size
    return found / len(case.branches) - case.temperatures[0] * log_prob.unsqueeze(1), log_prob


@pytest.mark.parametrize(("axes", "branches"), KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_policy_loss_is_the_textbook_s(axes: int, branches: tuple[int, ...], seed: int) -> None:
    """It is the mean of the soft values: expectations over choices, and the entropy of every part.

    The policy's gradient passes through actions, log-probabilities and expectations.
    """
    case = make(axes, branches, seed)
    drawn = case.drawn()
    soft, log_prob = textbook(case)
    found = soft_values(drawn, case.values(drawn.actions), case.alphas(), branches)
    torch.testing.assert_close(found, soft, rtol=1e-4, atol=1e-5)
    if drawn.log_prob is not None:
        torch.testing.assert_close(drawn.log_prob, log_prob, rtol=1e-4, atol=1e-4)
    own, expected = policy_loss(drawn, case.values(drawn.actions), case.alphas(), branches), -soft.mean()
    torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)
    leaves = [leaf for leaf in (case.mean, case.log_std, case.scores) if leaf.numel()]
    for found, wanted in zip(torch.autograd.grad(own, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("axes", "branches"), KINDS)
def test_the_critic_loss_is_the_textbook_s(axes: int, branches: tuple[int, ...]) -> None:
    """The critic loss is half the mean squared error of each critic, averaged over branches."""
    case = make(axes, branches)
    generator = torch.Generator().manual_seed(1)
    targets = torch.randn(STEPS, SIGNALS, generator=generator)
    values = case.base.clone().requires_grad_()
    if branches:
        chosen = torch.stack([torch.randint(size, (STEPS,), generator=generator) for size in branches], 1)
        offsets = torch.tensor([sum(branches[:index]) for index in range(len(branches))])
        parts = torch.split(values, list(branches), 3)
        rows = torch.arange(STEPS)
        told = torch.stack([part[:, rows, :, chosen[:, index]] for index, part in enumerate(parts)]).mean(0)
        worth = told.permute(1, 0, 2)
        choices = chosen + offsets
    else:
        worth, choices = values.squeeze(3), None
    expected = 0.5 * (worth - targets).square().mean((1, 2)).sum()
    own = critic_loss(values_of_actions(values, choices), targets)
    torch.testing.assert_close(own, expected)
    (found,), (wanted,) = torch.autograd.grad(own, [values]), torch.autograd.grad(expected, [values])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("axes", "branches"), KINDS)
def test_the_temperature_loss_is_the_textbook_s(axes: int, branches: tuple[int, ...]) -> None:
    """Too little entropy raises the temperature, without a gradient for the policy."""
    case = make(axes, branches)
    targets = Entropies(torch.tensor(-float(axes)), torch.tensor([0.2 * math.log(size) for size in branches]))
    log_alpha = torch.zeros((), requires_grad=True) if axes else None
    log_alphas = torch.zeros(len(branches), requires_grad=True) if branches else None
    entropies = mean_entropies(case.drawn(), branches)
    own = temperature_loss(Entropies(log_alpha, log_alphas), entropies, targets)
    expected = torch.zeros(())
    _, log_prob = textbook(case)
    if log_alpha is not None and targets.continuous is not None:
        expected = expected - log_alpha * (log_prob.detach() + targets.continuous).mean()
    if log_alphas is not None and targets.discrete is not None:
        policies = [Categorical(logits=part) for part in torch.split(case.scores, list(branches), 1)]
        found = torch.stack([policy.entropy() for policy in policies], 1).detach()
        expected = expected + (log_alphas * (found.mean(0) - targets.discrete)).sum()
    leaves = [leaf for leaf in (log_alpha, log_alphas) if leaf is not None]
    for gradient, wanted in zip(torch.autograd.grad(own, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4)
    assert not any(each is not None and each.requires_grad for each in entropies)


def test_forbidden_choices_have_no_part_in_anything() -> None:
    """Forbidden choices change no value, gradient or entropy."""
    scores = torch.tensor([[0.5, -0.5, -1e8]], requires_grad=True)
    drawn = draw(PolicyOutput(None, None, scores.log_softmax(1), None), None)
    values = torch.tensor([3.0, 1.0, 1e6]).expand(2, 1, 1, 3)
    loss = policy_loss(drawn, values, Alphas(None, torch.full((3,), 0.5)), (3,))
    few = draw(PolicyOutput(None, None, scores[:, :2].log_softmax(1), None), None)
    expected = policy_loss(few, values[..., :2], Alphas(None, torch.full((2,), 0.5)), (2,))
    torch.testing.assert_close(loss, expected)
    (own,), (wanted,) = torch.autograd.grad(loss, [scores]), torch.autograd.grad(expected, [scores])
    torch.testing.assert_close(own, wanted)
    assert own[0, 2] == 0
    torch.testing.assert_close(mean_entropies(drawn, (3,)), mean_entropies(few, (2,)))
