"""The IMPALA trainer: an actor-critic that corrects for the age of its experience by V-trace.

Its loss:

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| A | [B, 1] | advantage r + gamma * v_{s+1} - V, mean over signals |
| v | [B, K] | V-trace targets of the values |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
| rho | as log mu | min(rho_bar, pi / mu) under the current policy, a weight without gradient |
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from learner.shared.settings.hyperparameters import IMPALAHyperparameters
from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import (
    Batch,
    Coefficients,
    LossTerms,
    actor_critic_loss,
    log_probability,
)
from learner.training.trainers.actor_critic.targets import TargetRule, VTraceTargets
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer


class IMPALATrainer(ActorCriticTrainer):
    """Trains with policy gradients weighted by truncated ratios, on V-trace targets; see ``impala.md``.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    settings_model = IMPALAHyperparameters

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss."""
        return impala_loss(output, values, batch, coefficients)

    def target_rule(self) -> TargetRule:
        """Returns the rule that computes advantages and returns."""
        hyper = self.own_hyperparameters(self.context, IMPALAHyperparameters)
        return VTraceTargets(hyper.lambd, hyper.rho_bar, hyper.c_bar)

    def _coefficients(self) -> Coefficients:
        """Adds the truncation of ratios, which is the same at every step."""
        rho_bar = self.own_hyperparameters(self.context, IMPALAHyperparameters).rho_bar
        return replace(super()._coefficients(), rho_bar=rho_bar)


def impala_loss(output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
    """Computes -rho * A * log pi, with value loss and entropy (arXiv:1802.01561, section 4.2).

    All terms are means over the minibatch. With ``per_action`` each factor has its own rho under the same advantage,
    and the entropy of a step is the mean over its axes plus the sum over its branches. With ``joint``, factors are
    summed first.

    Args:
        output: Output of the policy network for the minibatch.
        values: Values of the critic, ``[B, K]``.
        batch: The minibatch.
        coefficients: Weights of the loss terms.
    """
    log_prob = log_probability(output, batch.continuous, batch.discrete, coefficients.ratio)
    # Truncated before the exponential, so that it cannot overflow.
    rho = (log_prob.detach() - batch.log_prob).clamp(max=math.log(coefficients.rho_bar)).exp()
    return actor_critic_loss(-(rho * batch.advantage * log_prob).mean(), output, values, batch, coefficients)
