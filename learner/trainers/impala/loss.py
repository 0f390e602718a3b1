"""The V-trace actor-critic's loss: one pure function from a minibatch to gradients at the networks' outputs.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | advantage r + gamma * v_{s+1} - V, mean over signals |
| v | [B, K] | V-trace targets of the values |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
| rho | as log mu | min(rho_bar, pi / mu) under the present policy, a weight through which nothing is differentiated |

As in `learner.trainers.ppo.loss`, derivatives are in closed form; a test compares them with autograd's.
"""

from __future__ import annotations

import math

from torch import Tensor

from learner.networks.policy import PolicyOutput
from learner.networks.value import OutputGradients
from learner.trainers.actor_critic.loss import Batch, Coefficients, Diagnostics, differentiated, log_probability


def impala_loss(
    output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients, branches: tuple[int, ...]
) -> tuple[OutputGradients, Diagnostics]:
    """Differentiates -rho * A * log pi + value * (V - v)^2 - beta * entropy (arXiv:1802.01561, section 4.2).

    All terms are means over the minibatch. With ``per_action`` each factor has its own rho under the same advantage, and
    the entropy of a step is the mean over its axes plus the sum over its branches. With ``joint`` factors are summed
    before.

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
    # Truncated before the exponential, which then cannot overflow.
    weight = log_ratio.clamp(max=math.log(coefficients.rho_bar)).exp_().mul_(batch.advantage)
    policy_loss = (weight * log_prob).mean().neg_()
    return differentiated(
        output,
        values,
        batch,
        coefficients,
        branches,
        policy_loss=policy_loss,
        log_ratio=log_ratio,
        to_log_prob=weight.mul_(-1.0 / weight.numel()),
    )
