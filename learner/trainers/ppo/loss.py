"""The PPO loss: one pure function from a minibatch to a loss, its parts, and its gradient at the networks' outputs.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | normalized advantage, mean over signals |
| R | [B, K] | returns: advantage before normalization + value at the start of the update |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |

The loss is a scalar of which only the derivative is needed. It is computed in closed form, from log-probabilities and
values down to the networks' outputs; `learner.networks.value.ActorCritic` goes on from there. A test compares it with
what autograd makes of the textbook's formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

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


class PPOBatch(NamedTuple):
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
class PPOCoefficients:
    """The weights of the loss, at their present place in the schedule.

    Attributes:
        epsilon: how far a ratio may move from 1 and still gain.
        beta: weight of the entropy.
        value: weight of the value loss.
        ratio: whether each factor's ratio is clipped alone, or that of the whole action.
    """

    epsilon: float
    beta: float
    ratio: Ratio
    value: float = 0.5


class PPODiagnostics(NamedTuple):
    """What the loss was made of, detached.

    Attributes:
        policy_loss: scalar.
        value_loss: scalar.
        entropy: scalar, mean over the minibatch.
        log_ratio: log-probability now minus recorded, of the shape of `PPOBatch.log_prob`.
    """

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    log_ratio: Tensor


def ppo_loss(
    output: PolicyOutput, values: Tensor, batch: PPOBatch, coefficients: PPOCoefficients, branches: tuple[int, ...]
) -> tuple[OutputGradients, PPODiagnostics]:
    """Differentiates policy_loss + value * value_loss - beta * entropy (arXiv:1707.06347, equations 7 and 9).

    With ``per_action`` each factor is clipped by itself under the same advantage, and the entropy of a step is the
    mean over its axes plus the sum over its branches, as in ML-Agents. With ``joint`` factors are summed before.

    Args:
        output: of the policy network for the steps of the minibatch.
        values: ``[B, K]`` of the critic.
        batch: the minibatch.
        coefficients: weights.
        branches: number of choices of each discrete branch.

    Returns:
        The derivative of the loss with respect to outputs and values, and what the loss was made of.
    """
    log_prob = log_probability(output, batch.continuous, batch.discrete, coefficients.ratio)
    log_ratio = log_prob - batch.log_prob
    ratios = log_ratio.exp()
    gain = ratios * batch.advantage
    limit = ratios.clamp_(1.0 - coefficients.epsilon, 1.0 + coefficients.epsilon) * batch.advantage
    # The smaller of the two counts. d(ratio)/d(log_prob) is the ratio itself; a ratio at its limit has none.
    to_log_prob = torch.where(gain <= limit, gain, 0.0).mul_(-1.0 / gain.numel())
    error = values - batch.returns
    choices = None
    if output.logits is not None:
        probabilities = output.logits.exp()
        choices = _Choices(output.logits, probabilities, categorical_entropy(output.logits, probabilities, branches))
    diagnostics = PPODiagnostics(
        torch.minimum(gain, limit).mean().neg_(),
        error.square().mean(),
        _mean_entropy(output.log_std, choices, coefficients.ratio),
        log_ratio,
    )
    gradients = _policy_gradients(output, choices, batch, to_log_prob, branches)
    if coefficients.beta > 0:
        gradients = _with_bonus(gradients, choices, coefficients, branches)
    return OutputGradients(*gradients, error.mul_(2.0 * coefficients.value / error.numel())), diagnostics


class _Choices(NamedTuple):
    """The discrete part of a policy's output: ``[B, sum(branches)]`` twice, and ``[B, b]``."""

    logits: Tensor
    probabilities: Tensor
    entropies: Tensor


def log_probability(output: PolicyOutput, continuous: Tensor | None, discrete: Tensor | None, ratio: Ratio) -> Tensor:
    """Returns the log-probability of actions as in `PPOBatch`, of the shape of `PPOBatch.log_prob`."""
    factors: list[Tensor] = []
    if output.mean is not None and output.log_std is not None and continuous is not None:
        factors.append(gaussian_log_prob(output.mean, output.log_std, continuous))
    if output.logits is not None and discrete is not None:
        factors.append(categorical_log_prob(output.logits, discrete))
    log_prob = factors[0] if len(factors) == 1 else torch.cat(factors, dim=1)
    return log_prob.sum(1, keepdim=True) if ratio == "joint" and log_prob.shape[1] > 1 else log_prob


def _mean_entropy(log_std: Tensor | None, choices: _Choices | None, ratio: Ratio) -> Tensor:
    """Returns the scalar mean over the minibatch."""
    parts: list[Tensor] = []
    if log_std is not None:
        axes = gaussian_entropy(log_std)
        parts.append(axes.mean() if ratio == "per_action" else axes.sum(1).mean())
    if choices is not None:
        parts.append(choices.entropies.sum() / choices.entropies.shape[0])
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


_PolicyGradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""With respect to mean, log_std and scores."""


def _policy_gradients(
    output: PolicyOutput, choices: _Choices | None, batch: PPOBatch, to_log_prob: Tensor, branches: tuple[int, ...]
) -> _PolicyGradients:
    """Goes back from log-probabilities ``[B, F]`` or, for all factors alike, ``[B, 1]``."""
    to_mean = to_log_std = to_scores = None
    axes = 0 if output.mean is None else output.mean.shape[1]
    outer = to_log_prob.expand(-1, axes + len(branches))
    if output.mean is not None and output.log_std is not None and batch.continuous is not None:
        to_mean, to_log_std = gaussian_log_prob_backward(output.mean, output.log_std, batch.continuous, outer[:, :axes])
    if choices is not None and batch.discrete is not None:
        to_scores = categorical_log_prob_backward(choices.probabilities, batch.discrete, branches, outer[:, axes:])
    return to_mean, to_log_std, to_scores


def _with_bonus(
    gradients: _PolicyGradients, choices: _Choices | None, coefficients: PPOCoefficients, branches: tuple[int, ...]
) -> _PolicyGradients:
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
