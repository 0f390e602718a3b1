"""The PPO loss.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | normalized advantage, mean over signals |
| R | [B, K] | returns: advantage before normalization + value at the start of the update |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

import torch
from torch import Tensor

from learner.networks.policy import PolicyOutput
from learner.trainers.actor_critic.loss import Batch, Coefficients, LossTerms, actor_critic_loss, log_probability


def ppo_loss(output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
    """Computes the clipped surrogate, with value loss and entropy (arXiv:1707.06347, equations 7 and 9).

    With ``per_action`` each factor is clipped by itself under the same advantage, and the entropy of a step is the
    mean over its axes plus the sum over its branches, as in ML-Agents. With ``joint`` factors are summed before.

    Args:
        output: of the policy network for the steps of the minibatch.
        values: ``[B, K]`` of the critic.
        batch: the minibatch.
        coefficients: weights.
    """
    log_prob = log_probability(output, batch.continuous, batch.discrete, coefficients.ratio)
    ratios = (log_prob - batch.log_prob).exp()
    # min(r A, clip(r, 1 - epsilon, 1 + epsilon) A) is min(r A, A + epsilon |A|): the limit is a constant.
    limit = batch.advantage + coefficients.epsilon * batch.advantage.abs()
    gain = torch.minimum(ratios * batch.advantage, limit)
    return actor_critic_loss(-gain.mean(), output, values, batch, coefficients)
