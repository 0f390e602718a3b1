"""PPO with a penalty on the KL divergence instead of the clip (Schulman et al. 2017, arXiv:1707.06347, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from learner.shared.observe.behavior_state import Field
from learner.shared.saved_values import number
from learner.shared.settings.base import Fraction, PositiveReal
from learner.shared.settings.hyperparameters import PPOHyperparameters, SharedCriticHyperparameters
from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import (
    Batch,
    Coefficients,
    LossTerms,
    actor_critic_loss,
    log_probability,
)
from learner.training.trainers.actor_critic.targets import GeneralizedAdvantages, TargetRule
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.base import TrainerContext

MIN_PENALTY, MAX_PENALTY = 1e-4, 1e4


class PenaltyHyperparameters(SharedCriticHyperparameters):
    """Hyperparameters of all actor-critics, and three more."""

    traits = PPOHyperparameters.traits  # on policy, a lag of at most four versions, repeatable in lock-step

    lambd: Fraction = 0.95
    """lambda of generalized advantage estimation"""
    target_divergence: PositiveReal = 0.01
    """intended divergence from the policy that acted, in nats, as the mean over an update"""
    penalty: PositiveReal = 1.0
    """weight of the divergence at the start"""


class PenaltyTrainer(ActorCriticTrainer):
    """PPO with a penalty on the divergence, whose weight adapts.

    Args:
        context: Settings, spec and services of the run.

    Attributes:
        penalty: Weight of the divergence.
    """

    settings_model = PenaltyHyperparameters
    fields = (Field("penalty", "Weight of the divergence in the loss.", label="penalty"),)

    def __init__(self, context: TrainerContext) -> None:
        hyper = self.own_hyperparameters(context, PenaltyHyperparameters)
        self.penalty, self._target_divergence, self._lambd = hyper.penalty, hyper.target_divergence, hyper.lambd
        super().__init__(context)

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the penalized surrogate (equation 8), value loss and entropy.

        The estimate of the divergence from the taken actions is unbiased: each adds r - 1 - log r, which is never
        negative (Schulman 2020, "Approximating KL divergence").
        """
        log_prob = log_probability(output, batch.continuous, batch.discrete, coefficients.ratio)
        log_ratio = log_prob - batch.log_prob
        ratio = log_ratio.exp()
        divergence = (ratio - 1 - log_ratio).sum(1).mean()
        policy_loss = self.penalty * divergence - (ratio * batch.advantage).mean()
        return actor_critic_loss(policy_loss, output, values, batch, coefficients, divergence=divergence)

    def target_rule(self) -> TargetRule:
        """Returns generalized advantage estimation."""
        return GeneralizedAdvantages(self._lambd)

    def after_update(self, scalars: Mapping[str, float]) -> None:
        """Doubles the weight if the divergence was too large, and halves it if it was too small."""
        if scalars["divergence"] > 1.5 * self._target_divergence:
            self.penalty = min(2 * self.penalty, MAX_PENALTY)
        elif scalars["divergence"] < self._target_divergence / 1.5:
            self.penalty = max(self.penalty / 2, MIN_PENALTY)
        self.stats_reporter.add_stat("Policy/Penalty", self.penalty)
        self.numbers["penalty"] = self.penalty

    def model_state(self) -> dict[str, Any]:
        """Returns the state of a checkpoint with the weight."""
        return {**super().model_state(), "penalty": self.penalty}

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state that `model_state` returned."""
        super().load_model_state(state)
        self.penalty = number(state, "penalty", least=0.0)
