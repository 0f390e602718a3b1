"""The PPO loss.

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | advantage, mean over signals, normalized unless the run file says otherwise |
| R | [B, K] | returns: advantage before normalization + value at the start of the update |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

from torch import Tensor

from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import (
    Batch,
    Coefficients,
    LossTerms,
    actor_critic_loss,
    clipped_surrogate,
)


def ppo_loss(output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
    """Computes the clipped surrogate, with value loss and entropy (arXiv:1707.06347, equations 7 and 9).

    With ``per_action`` each factor is clipped separately under the same advantage, and the entropy of a step is the
    mean over its axes plus the sum over its branches, as in ML-Agents. With ``joint``, factors are summed first.

    Args:
        output: Output of the policy network for the minibatch.
        values: Values of the critic, ``[B, K]``.
        batch: The minibatch.
        coefficients: Weights of the loss terms.
    """
    return actor_critic_loss(clipped_surrogate(output, batch, coefficients), output, values, batch, coefficients)
