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

import torch
from torch import Tensor

from learner.networks.policy import PolicyOutput
from learner.networks.value import OutputGradients
from learner.trainers.actor_critic.loss import Batch, Coefficients, Diagnostics, differentiated, log_probability


def ppo_loss(
    output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients, branches: tuple[int, ...]
) -> tuple[OutputGradients, Diagnostics]:
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
    return differentiated(
        output,
        values,
        batch,
        coefficients,
        branches,
        policy_loss=torch.minimum(gain, limit).mean().neg_(),
        log_ratio=log_ratio,
        to_log_prob=to_log_prob,
    )
