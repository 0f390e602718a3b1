"""The IMPALA trainer: an actor-critic that corrects for the age of its experience by V-trace."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from learner.networks.policy import PolicyOutput
from learner.settings.hyperparameters import IMPALAHyperparameters
from learner.trainers.actor_critic.loss import Batch, Coefficients, LossTerms
from learner.trainers.actor_critic.targets import TargetRule, VTraceTargets
from learner.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.trainers.base import TrainerContext
from learner.trainers.impala.loss import impala_loss


class IMPALATrainer(ActorCriticTrainer):
    """Policy gradients weighted with truncated ratios, on V-trace targets; see ``impala.md``.

    Args:
        context: everything from outside.

    Raises:
        UserError: the settings do not fit the behavior.
    """

    # As in the paper: normalized, the noise that is left when all goes well would be blown up, and nothing is clipped here.
    normalizes_advantages: ClassVar[bool] = False

    def __init__(self, context: TrainerContext) -> None:
        hyper = self.own_hyperparameters(context, IMPALAHyperparameters)
        self._targets = VTraceTargets(hyper.lambd, hyper.rho_bar, hyper.c_bar)
        super().__init__(context)

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes what is descended."""
        return impala_loss(output, values, batch, coefficients)

    def target_rule(self) -> TargetRule:
        """Returns how advantages and returns are made."""
        return self._targets

    def _coefficients(self) -> Coefficients:
        """Adds where ratios are truncated, which no schedule changes."""
        return replace(super()._coefficients(), rho_bar=self._targets.rho_bar)
