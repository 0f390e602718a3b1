"""The PPO loss: one pure function from a minibatch to a loss and what can be said about it.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | normalized advantage, mean over signals |
| R | [B, K] | returns: advantage before normalization + value at the start of the update |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from learner.networks.distributions import (
    categorical_entropy,
    categorical_log_prob,
    gaussian_entropy,
    gaussian_log_prob,
)
from learner.networks.policy import PolicyOutput

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
    """What the loss was made of.

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
) -> tuple[Tensor, PPODiagnostics]:
    """Computes policy + value * value_loss - beta * entropy (arXiv:1707.06347, equations 7 and 9).

    With ``per_action`` each factor is clipped by itself under the same advantage, and the entropy of a step is the
    mean over its axes plus the sum over its branches, as in ML-Agents. With ``joint`` factors are summed before.

    Args:
        output: of the policy network for the steps of the minibatch.
        values: ``[B, K]`` of the critic.
        batch: the minibatch.
        coefficients: weights.
        branches: number of choices of each discrete branch.

    Returns:
        The scalar loss, and its parts (detached).
    """
    log_prob = _log_prob(output, batch, coefficients.ratio)
    with torch.set_grad_enabled(coefficients.beta > 0 and torch.is_grad_enabled()):  # else it is for the record only
        entropy = _entropy(output, coefficients.ratio, branches)
    log_ratio = log_prob - batch.log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - coefficients.epsilon, 1.0 + coefficients.epsilon)
    policy_loss = -torch.minimum(ratio * batch.advantage, clipped * batch.advantage).mean()
    value_loss = torch.nn.functional.mse_loss(values, batch.returns)
    loss = policy_loss + coefficients.value * value_loss
    if coefficients.beta > 0:
        loss = loss - coefficients.beta * entropy
    return loss, PPODiagnostics(policy_loss.detach(), value_loss.detach(), entropy.detach(), log_ratio.detach())


def _log_prob(output: PolicyOutput, batch: PPOBatch, ratio: Ratio) -> Tensor:
    """Returns ``[B, F]`` or ``[B, 1]``."""
    factors: list[Tensor] = []
    if output.mean is not None and output.log_std is not None and batch.continuous is not None:
        factors.append(gaussian_log_prob(output.mean, output.log_std, batch.continuous))
    if output.logits is not None and batch.discrete is not None:
        factors.append(categorical_log_prob(output.logits, batch.discrete))
    log_prob = factors[0] if len(factors) == 1 else torch.cat(factors, dim=1)
    return log_prob.sum(1, keepdim=True) if ratio == "joint" and log_prob.shape[1] > 1 else log_prob


def _entropy(output: PolicyOutput, ratio: Ratio, branches: tuple[int, ...]) -> Tensor:
    """Returns the scalar mean over the minibatch."""
    parts: list[Tensor] = []
    if output.log_std is not None:
        axes = gaussian_entropy(output.log_std)
        parts.append(axes.mean() if ratio == "per_action" else axes.sum(1).mean())
    if output.logits is not None:
        parts.append(categorical_entropy(output.logits, branches).sum(1).mean())
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]
