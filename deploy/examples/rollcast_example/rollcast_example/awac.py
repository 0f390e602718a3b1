"""Advantage-weighted actor-critic (Nair et al. 2020, arXiv:2006.09359) with a replay memory, for every kind of action.

A replay trainer extends `OffPolicyTrainer`: it builds networks and optimizers, and computes the loss of a minibatch. The base
class provides memory, pace, schedules, reward signals, checkpoints and reports.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.base import Fraction, PositiveReal, Schedule
from learner.shared.settings.hyperparameters import ReplayHyperparameters
from learner.shared.settings.trainer import TrainerSettings
from learner.training.networks.encoders import Encoded
from learner.training.networks.policy import PolicyOutput
from learner.training.networks.squashed import SquashedPolicyNetwork, draw
from learner.training.networks.twin import TwinCritic, values_of_actions
from learner.training.optimizers.adam import FlatAdam
from learner.training.optimizers.soft_target import SoftTarget
from learner.training.trainers.actor_critic.loss import LossTerms, log_probability
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.off_policy import OffPolicyTrainer
from learner.training.trainers.replay_batches import Batch, encode, encode_next, hidden_of
from learner.training.trainers.sac.loss import Alphas, critic_loss, soft_values


class AWACHyperparameters(ReplayHyperparameters):
    """Hyperparameters of every replay trainer, and four more."""

    traits = replace(ReplayHyperparameters.traits, squashed=True)  # the policy is a SquashedPolicyNetwork

    learning_rate_schedule: Schedule = "constant"
    """linear to 1e-10 over max_steps, or constant"""
    tau: Fraction = 0.005
    """share of the critics' weights in each update of their copies"""
    advantage_scale: PositiveReal = 1.0
    """lambda: an action with this advantage has weight e"""
    max_weight: PositiveReal = 20.0
    """maximum weight of an action, as in Wang et al. 2020 (arXiv:2006.15134)"""


class AWACNetworks(nn.Module):
    """A policy, twin critics, and slowly updated copies of the critics.

    Args:
        policy: The policy.
        critic: The critics.
    """

    def __init__(self, policy: SquashedPolicyNetwork, critic: TwinCritic) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)


class AWACTrainer(OffPolicyTrainer):
    """Raises the likelihood of actions in the memory, weighted by their advantage over the policy.

    Args:
        context: Settings, spec and services of the run.
    """

    settings_model = AWACHyperparameters
    networks: AWACNetworks

    def __init__(self, context: TrainerContext) -> None:
        self._own = self.own_hyperparameters(context, AWACHyperparameters)
        super().__init__(context)

    @classmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> AWACNetworks:
        """Builds the policy and the critics."""
        network, signals = settings.network_settings, len(settings.reward_signals.active())
        policy = SquashedPolicyNetwork(spec, network, generator)
        return AWACNetworks(policy, TwinCritic(spec, network, signals, generator))

    def build_optimizers(self) -> dict[str, FlatAdam]:
        """Returns one optimizer for the policy and one for the critics."""
        critic = self.adam(self.networks.critic)
        self._target = SoftTarget(self.networks.target, self.networks.critic, critic, self._own.tau)
        return {"policy": self.adam(self.networks.policy), "critic": critic}

    def loss(self, batch: Batch) -> LossTerms:
        """Computes the critics' squared errors minus the weighted log-likelihood of the actions (algorithm 1)."""
        policy, critic, target = self.networks.policy, self.networks.critic, self.networks.target
        hidden = hidden_of(policy, batch)
        output, encoded = policy.act(hidden.now, batch.masks), encode(critic, batch)
        values = values_of_actions(critic.values(encoded, batch.actions), batch.choices)
        with torch.no_grad():
            after = self._expected(target, encode_next(target, batch), policy.act(hidden.after, batch.next_masks))
            advantage = (values.min(0).values - self._expected(critic, encoded, output)).mean(1, keepdim=True)
            weights = (advantage / self._own.advantage_scale).exp().clamp(max=self._own.max_weight)
        value_loss = critic_loss(values, batch.rewards + batch.discounts * after)
        likelihood = log_probability(output, batch.draws, batch.choices, "joint")
        policy_loss = -(weights * likelihood).mean()
        scalars = {"policy_loss": policy_loss, "value_loss": value_loss, "advantage_weight": weights.mean()}
        return LossTerms(value_loss + policy_loss, scalars)

    def after_step(self) -> None:
        """Updates the copies of the critics."""
        self._target.update()

    def _expected(self, critic: TwinCritic, encoded: Encoded, output: PolicyOutput) -> Tensor:
        """Estimates the policy's expected value ``[B, K]`` by the smaller critic, from one draw and all choices."""
        drawn = draw(output, self.noise(encoded.values.shape[-2]))
        branches = self.networks.policy.spec.action.discrete_branches
        return soft_values(drawn, critic.values(encoded, drawn.actions), Alphas(None, None), branches)
