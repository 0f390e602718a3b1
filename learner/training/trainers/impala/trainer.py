"""The IMPALA trainer: an actor-critic that corrects for the age of its experience by V-trace."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from learner.shared.settings.hyperparameters import IMPALAHyperparameters
from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, LossTerms
from learner.training.trainers.actor_critic.targets import TargetRule, VTraceTargets
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.impala.loss import impala_loss


class IMPALATrainer(ActorCriticTrainer):
    """Trains with policy gradients weighted by truncated ratios, on V-trace targets; see ``impala.md``.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    def __init__(self, context: TrainerContext) -> None:
        hyper = self.own_hyperparameters(context, IMPALAHyperparameters)
        self._targets = VTraceTargets(hyper.lambd, hyper.rho_bar, hyper.c_bar)
        super().__init__(context)

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss."""
        return impala_loss(output, values, batch, coefficients)

    def target_rule(self) -> TargetRule:
        """Returns the rule that computes advantages and returns."""
        return self._targets

    def _coefficients(self) -> Coefficients:
        """Adds the truncation of ratios, which is the same at every step."""
        return replace(super()._coefficients(), rho_bar=self._targets.rho_bar)
