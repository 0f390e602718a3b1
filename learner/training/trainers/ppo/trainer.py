"""The PPO trainer: ML-Agents' `ppo`, with the recorded log-probabilities of many actors."""

from __future__ import annotations

from torch import Tensor

from learner.shared.settings.hyperparameters import PPOHyperparameters
from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import (
    Batch,
    Coefficients,
    LossTerms,
    actor_critic_loss,
    clipped_surrogate,
)
from learner.training.trainers.actor_critic.targets import GeneralizedAdvantages, TargetRule
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer


class PPOTrainer(ActorCriticTrainer):
    """Trains with proximal policy optimization over segments of many actors; see ``ppo.md``.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    settings_model = PPOHyperparameters

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss."""
        return ppo_loss(output, values, batch, coefficients)

    def target_rule(self) -> TargetRule:
        """Returns the rule that computes advantages and returns."""
        return GeneralizedAdvantages(self.own_hyperparameters(self.context, PPOHyperparameters).lambd)


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
