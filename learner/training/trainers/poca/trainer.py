"""The POCA trainer: PPO for groups of agents, whose critic sees all mates."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.link.to_trainers import Experience
from learner.shared.settings.hyperparameters import POCAHyperparameters
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.columns import ACTION_MASK
from learner.training.networks.group import GroupActorCritic, GroupCritic
from learner.training.networks.kept import KeptBytes
from learner.training.networks.policy import PolicyNetwork, PolicyOutput
from learner.training.networks.value import Sequences
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, LossTerms
from learner.training.trainers.actor_critic.targets import CounterfactualAdvantages, TargetRule
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.poca.experience import GroupExperienceMaker, mates_of
from learner.training.trainers.poca.footprint import minibatch_bytes
from learner.training.trainers.poca.loss import poca_loss
from learner.training.trainers.schedules import EPSILON_FLOOR, ScheduledValue


class POCATrainer(ActorCriticTrainer):
    """Trains cooperating agents with MA-POCA (Cohen et al. 2022, arXiv:2111.05992); see ``poca.md``.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    maker_type = GroupExperienceMaker

    def __init__(self, context: TrainerContext) -> None:
        hyper = self.own_hyperparameters(context, POCAHyperparameters)
        self._lambd = hyper.lambd
        super().__init__(context)
        self._epsilon = ScheduledValue(hyper.epsilon_schedule, hyper.epsilon, EPSILON_FLOOR, self.get_max_steps)

    @classmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> GroupActorCritic:
        """Builds policy and critic on torch's default device; see `ActorCriticTrainer.build_networks`."""
        network = settings.network_settings
        signals = len(settings.reward_signals.active())
        policy = PolicyNetwork(spec, network, generator)
        return GroupActorCritic(policy, GroupCritic(spec, network, signals, generator))

    @classmethod
    def minibatch_bytes(cls, network: nn.Module, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts the bytes that a minibatch takes; see `ActorCriticTrainer.minibatch_bytes`."""
        del settings
        if not isinstance(network, GroupActorCritic):
            raise TypeError(f"{type(network).__name__} is not a GroupActorCritic")
        return minibatch_bytes(network, spec)

    def evaluate(self, columns: Mapping[str, Tensor], sequences: Sequences | None) -> tuple[PolicyOutput, Tensor]:
        """Computes the outputs of policy and critic for a minibatch with the mates of its agents."""
        network, names = self.network, self._maker.observations
        if not isinstance(network, GroupActorCritic):
            raise TypeError(f"{type(network).__name__} is not a GroupActorCritic")
        observations = [columns[name] for name in names]
        return network.forward(observations, columns.get(ACTION_MASK), mates_of(columns, names), sequences)

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss."""
        return poca_loss(output, values, batch, coefficients)

    def target_rule(self) -> TargetRule:
        """Returns the rule that computes advantages and returns."""
        return CounterfactualAdvantages(self._lambd)

    def epsilon_at(self, step: int) -> float:
        """Returns the clipping range of the schedule."""
        return self._epsilon.at(step)

    def _note_group_rewards(self, item: Experience) -> None:
        """Gives no warning: this trainer assigns credit among group members."""
