"""Advantage-weighted actor-critic (Nair et al. 2020, arXiv:2006.09359) on replay memory, for every kind of action.

A replay trainer extends `OffPolicyTrainer`: it says which networks and optimizers there are, and computes the loss of a
minibatch. Memory, pace, schedules, reward signals, checkpoints and reports come with it.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.encoders import Encoded
from learner.networks.policy import PolicyOutput
from learner.networks.squashed import SquashedPolicyNetwork, draw
from learner.networks.twin import TwinCritic, values_of_actions
from learner.optimizers.adam import FlatAdam
from learner.optimizers.soft_target import SoftTarget
from learner.settings.base import Fraction, PositiveReal, Schedule
from learner.settings.hyperparameters import ReplayHyperparameters
from learner.settings.trainer import TrainerSettings
from learner.trainers.actor_critic.loss import LossTerms, log_probability
from learner.trainers.base import TrainerContext
from learner.trainers.off_policy import OffPolicyTrainer
from learner.trainers.replay_batches import Batch, encode, encode_next, hidden_of
from learner.trainers.sac.loss import Alphas, critic_loss, soft_values


class AWACHyperparameters(ReplayHyperparameters):
    """What every replay trainer has, and four settings."""

    traits = replace(ReplayHyperparameters.traits, squashed=True)  # the policy is a SquashedPolicyNetwork

    learning_rate_schedule: Schedule = "constant"
    """linear to 1e-10 over max_steps, or constant"""
    tau: Fraction = 0.005
    """share of the newest values in the target network"""
    advantage_scale: PositiveReal = 1.0
    """lambda: an action that is better by this much counts e times as much"""
    max_weight: PositiveReal = 20.0
    """the most that an action counts, as in Wang et al. 2020 (arXiv:2006.15134)"""


class AWACNetworks(nn.Module):
    """A policy, twin critics, and copies of the critics that follow them.

    Args:
        policy: what acts.
        critic: the critics.
    """

    def __init__(self, policy: SquashedPolicyNetwork, critic: TwinCritic) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)


class AWACTrainer(OffPolicyTrainer):
    """Raises the likelihood of actions in the memory, the more so the better they are than what the policy would do.

    Args:
        context: everything from outside.
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
        """Builds everything that is trained."""
        network, signals = settings.network_settings, len(settings.reward_signals.active())
        policy = SquashedPolicyNetwork(spec, network, generator)
        return AWACNetworks(policy, TwinCritic(spec, network, signals, generator))

    def build_optimizers(self) -> dict[str, FlatAdam]:
        """Makes one for the policy and one for the critics, which their copies follow."""
        critic = self.adam(self.networks.critic)
        self._target = SoftTarget(self.networks.target, self.networks.critic, critic, self._own.tau)
        return {"policy": self.adam(self.networks.policy), "critic": critic}

    def loss(self, batch: Batch) -> LossTerms:
        """Computes the squared errors of the critics, less the weighted likelihood of the actions (algorithm 1)."""
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
        """Lets the copies follow."""
        self._target.update()

    def _expected(self, critic: TwinCritic, encoded: Encoded, output: PolicyOutput) -> Tensor:
        """Estimates what the policy can expect of the smaller critic, ``[B, K]``: one draw, and the mean over choices."""
        drawn = draw(output, self.noise(encoded.values.shape[-2]))
        branches = self.networks.policy.spec.action.discrete_branches
        return soft_values(drawn, critic.values(encoded, drawn.actions), Alphas(None, None), branches)
