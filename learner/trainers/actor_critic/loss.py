"""What the losses of actor-critic trainers are made of: likelihoods and entropies of actions, and their derivatives.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | advantage, mean over signals |
| R | [B, K] | what the values shall become |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from learner.networks.distributions import (
    categorical_entropy,
    categorical_entropy_backward,
    categorical_log_prob,
    categorical_log_prob_backward,
    gaussian_entropy,
    gaussian_log_prob,
    gaussian_log_prob_backward,
)
from learner.networks.policy import PolicyOutput
from learner.networks.value import OutputGradients

Ratio = Literal["per_action", "joint"]


class Batch(NamedTuple):
    """What the loss needs of each step.

    Attributes:
        continuous: ``[B, n]`` raw draws, or None.
        discrete: ``[B, b]`` int64, each action plus the offset of its branch (`branch_offsets`), or None.
        log_prob: ``[B, F]`` for ratio ``per_action``, ``[B, 1]`` for ``joint``.
        advantage: ``[B, 1]``.
        returns: ``[B, K]``.
    """

    continuous: Tensor | None
    discrete: Tensor | None
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The weights of the loss, at their present place in the schedule.

    Attributes:
        epsilon: how far a ratio may move from 1 and still gain; 0 in a loss that truncates ratios at ``rho_bar`` instead.
        beta: weight of the entropy.
        value: weight of the value loss.
        ratio: whether each factor has its own ratio, or the whole action one.
        rho_bar: the largest weight that a ratio may give a step.
    """

    epsilon: float
    beta: float
    ratio: Ratio
    value: float = 0.5
    rho_bar: float = 1.0

    def is_limited(self, ratios: Tensor) -> Tensor:
        """Returns where ratios are clipped or truncated, of their shape."""
        return (ratios - 1.0).abs() > self.epsilon if self.epsilon else ratios > self.rho_bar


class Diagnostics(NamedTuple):
    """What the loss was made of, detached.

    Attributes:
        policy_loss: scalar.
        value_loss: scalar.
        entropy: scalar, mean over the minibatch.
        log_ratio: log-probability now minus recorded, of the shape of `Batch.log_prob`.
    """

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    log_ratio: Tensor


class Loss(Protocol):
    """A loss as one pure function of a minibatch; see `learner.trainers.ppo.loss.ppo_loss`."""

    def __call__(
        self,
        output: PolicyOutput,
        values: Tensor,
        batch: Batch,
        coefficients: Coefficients,
        branches: tuple[int, ...],
    ) -> tuple[OutputGradients, Diagnostics]:
        """Returns derivatives at the networks' outputs, and what the loss was made of."""


class Choices(NamedTuple):
    """The discrete part of a policy's output.

    Attributes:
        logits: ``[B, sum(branches)]``, normalized for each branch.
        probabilities: their exponentials.
        entropies: ``[B, b]``.
    """

    logits: Tensor
    probabilities: Tensor
    entropies: Tensor


def choices_of(output: PolicyOutput, branches: tuple[int, ...]) -> Choices | None:
    """Returns probabilities and entropies of the branches; None if the behavior has none."""
    if output.logits is None:
        return None
    probabilities = output.logits.exp()
    return Choices(output.logits, probabilities, categorical_entropy(output.logits, probabilities, branches))


def log_probability(output: PolicyOutput, continuous: Tensor | None, discrete: Tensor | None, ratio: Ratio) -> Tensor:
    """Returns the log-probability of actions as in `Batch`, of the shape of `Batch.log_prob`."""
    factors: list[Tensor] = []
    if output.mean is not None and output.log_std is not None and continuous is not None:
        factors.append(gaussian_log_prob(output.mean, output.log_std, continuous))
    if output.logits is not None and discrete is not None:
        factors.append(categorical_log_prob(output.logits, discrete))
    log_prob = factors[0] if len(factors) == 1 else torch.cat(factors, dim=1)
    return log_prob.sum(1, keepdim=True) if ratio == "joint" and log_prob.shape[1] > 1 else log_prob


def mean_entropy(log_std: Tensor | None, choices: Choices | None, ratio: Ratio) -> Tensor:
    """Returns the scalar mean over the minibatch."""
    parts: list[Tensor] = []
    if log_std is not None:
        axes = gaussian_entropy(log_std)
        parts.append(axes.mean() if ratio == "per_action" else axes.sum(1).mean())
    if choices is not None:
        parts.append(choices.entropies.sum() / choices.entropies.shape[0])
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


PolicyGradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""With respect to mean, log_std and scores."""


def policy_gradients(
    output: PolicyOutput, choices: Choices | None, batch: Batch, to_log_prob: Tensor, branches: tuple[int, ...]
) -> PolicyGradients:
    """Goes back from log-probabilities ``[B, F]`` or, for all factors alike, ``[B, 1]``."""
    to_mean = to_log_std = to_scores = None
    axes = 0 if output.mean is None else output.mean.shape[1]
    outer = to_log_prob.expand(-1, axes + len(branches))
    if output.mean is not None and output.log_std is not None and batch.continuous is not None:
        to_mean, to_log_std = gaussian_log_prob_backward(output.mean, output.log_std, batch.continuous, outer[:, :axes])
    if choices is not None and batch.discrete is not None:
        to_scores = categorical_log_prob_backward(choices.probabilities, batch.discrete, branches, outer[:, axes:])
    return to_mean, to_log_std, to_scores


def with_bonus(
    gradients: PolicyGradients, choices: Choices | None, coefficients: Coefficients, branches: tuple[int, ...]
) -> PolicyGradients:
    """Adds the derivative of ``-beta * entropy``."""
    to_mean, to_log_std, to_scores = gradients
    if to_log_std is not None:
        # An axis's entropy is log_std plus a constant.
        steps, axes = to_log_std.shape
        to_log_std = to_log_std - coefficients.beta / (steps * axes if coefficients.ratio == "per_action" else steps)
    if to_scores is not None and choices is not None:
        outer = -coefficients.beta / choices.entropies.shape[0]
        to_scores = to_scores + categorical_entropy_backward(*choices, branches, outer)
    return to_mean, to_log_std, to_scores


def differentiated(
    output: PolicyOutput,
    values: Tensor,
    batch: Batch,
    coefficients: Coefficients,
    branches: tuple[int, ...],
    *,
    policy_loss: Tensor,
    log_ratio: Tensor,
    to_log_prob: Tensor,
) -> tuple[OutputGradients, Diagnostics]:
    """Goes back to the networks' outputs, and adds what all losses have: the error of the values, and the entropy.

    Args:
        output: of the policy network for the steps of the minibatch.
        values: ``[B, K]`` of the critic.
        batch: the minibatch.
        coefficients: weights.
        branches: number of choices of each discrete branch.
        policy_loss: scalar, the algorithm's own term.
        log_ratio: log-probability now minus recorded, of the shape of `Batch.log_prob`.
        to_log_prob: the derivative of that term with respect to log-probabilities, of the same shape.

    Returns:
        The derivative of policy_loss + value * (V - R)^2 - beta * entropy, and what the loss was made of.
    """
    error = values - batch.returns
    choices = choices_of(output, branches)
    diagnostics = Diagnostics(
        policy_loss, error.square().mean(), mean_entropy(output.log_std, choices, coefficients.ratio), log_ratio
    )
    gradients = policy_gradients(output, choices, batch, to_log_prob, branches)
    if coefficients.beta > 0:
        gradients = with_bonus(gradients, choices, coefficients, branches)
    return OutputGradients(*gradients, error.mul_(2.0 * coefficients.value / error.numel())), diagnostics
