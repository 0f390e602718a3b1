"""The APPO trainer: PPO for fleets whose steps are several versions old when trained."""

from __future__ import annotations

from torch import Tensor

from learner.shared.settings.hyperparameters import APPOHyperparameters
from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, LossTerms
from learner.training.trainers.actor_critic.targets import TargetRule, VTraceTargets
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.ppo.trainer import ppo_loss


class APPOTrainer(ActorCriticTrainer):
    """Trains with PPO's clipped surrogate pi / mu, with the recorded mu, on V-trace targets; see ``appo.md``.

    The ratio of the surrogate measures the distance between the current policy and the one that acted. Advantages have
    no rho, because rho would count the same ratio twice.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    settings_model = APPOHyperparameters

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss."""
        return ppo_loss(output, values, batch, coefficients)

    def target_rule(self) -> TargetRule:
        """Returns the rule that computes advantages and returns."""
        hyper = self.own_hyperparameters(self.context, APPOHyperparameters)
        return VTraceTargets(hyper.lambd, hyper.rho_bar, hyper.c_bar)
