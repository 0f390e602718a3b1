"""The POCA loss.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| V, b | [B, K] | value of the group, and counterfactual baseline of the agent |
| R | [B, K] | lambda-returns of the group's value |
| b_old | [B, K] | baseline before the update |
| A | [B, 1] | R - b_old, mean over signals, normalized unless the run file says otherwise |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

import torch
from torch import Tensor

from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import (
    Batch,
    Coefficients,
    LossTerms,
    actor_critic_loss,
    clipped_surrogate,
)

BASELINE = 0.5
"""Weight of the baseline loss in proportion to the value loss, as in ML-Agents."""


def poca_loss(output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
    """Computes policy + value * ((V - R)^2 + 0.5 * baseline) - beta * entropy (arXiv:2111.05992, equations 7 and 8).

    The policy term is PPO's clipped surrogate. The baseline may move epsilon away from its value before the update:
    baseline = max((b - R)^2, (b_old + clip(b - b_old, -epsilon, epsilon) - R)^2).

    Args:
        output: Output of the policy network for the minibatch.
        values: Values of the critic, then its baselines, ``[B, 2 * K]``.
        batch: The minibatch, with `old_baselines`.
        coefficients: Weights of the loss terms.
    """
    value, baseline = values.chunk(2, dim=1)
    policy_loss = clipped_surrogate(output, batch, coefficients)
    error = (baseline - batch.returns).square()
    if batch.old_baselines is not None:
        moved = (baseline - batch.old_baselines).clamp(-coefficients.epsilon, coefficients.epsilon)
        error = torch.maximum(error, (batch.old_baselines + moved - batch.returns).square())
    baseline_loss = error.mean()
    terms = actor_critic_loss(policy_loss, output, value, batch, coefficients, baseline_loss=baseline_loss)
    return terms._replace(total=terms.total + coefficients.value * BASELINE * baseline_loss)
