"""The SAC trainer: off-policy actor-critic with learned temperatures, from the replay memory of many actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.kept import KeptBytes
from learner.networks.squashed import SquashedPolicyNetwork, draw
from learner.networks.twin import TwinCritic, values_of_actions
from learner.optimizers.adam import FlatAdam
from learner.optimizers.soft_target import SoftTarget
from learner.settings.hyperparameters import SACHyperparameters
from learner.settings.trainer import TrainerSettings
from learner.trainers.actor_critic.loss import LossTerms
from learner.trainers.base import TrainerContext
from learner.trainers.off_policy import EXPLAINED_VARIANCE, OffPolicyTrainer
from learner.trainers.replay_batches import Batch, encode, encode_next, hidden_of
from learner.trainers.replay_footprint import minibatch_bytes
from learner.trainers.sac.loss import (
    Entropies,
    critic_loss,
    mean_entropies,
    policy_loss,
    soft_values,
    temperature_loss,
)
from learner.trainers.sac.networks import SACNetworks, Temperatures


class SACLosses(NamedTuple):
    """The losses of a minibatch, and what they were made of, on the device; only the losses have gradients.

    Attributes:
        critics: scalar, of both.
        policy: scalar.
        temperatures: scalar, of all.
        values: ``[2, B, K]``, what the critics said of the actions that were taken.
        targets: ``[B, K]``, what they are driven at.
        entropies: of the policy, where the steps were taken.
    """

    critics: Tensor
    policy: Tensor
    temperatures: Tensor
    values: Tensor
    targets: Tensor
    entropies: Entropies


def minibatch_losses(networks: SACNetworks, batch: Batch, noise: Tensor | None) -> SACLosses:
    """Computes all losses at the same parameters; each parameter has a gradient in one of them only.

    Args:
        networks: on the device of the minibatch.
        batch: the minibatch.
        noise: ``[2, B, n]`` standard normal, of the actions where the steps were taken and after them; None without
            continuous actions.
    """
    policy, critic, target, temperatures = networks.policy, networks.critic, networks.target, networks.temperatures
    alphas, branches = temperatures.alphas(), networks.branches
    own_noise, next_noise = (None, None) if noise is None else noise.unbind()

    hidden = hidden_of(policy, batch)
    with torch.no_grad():
        following = draw(policy.act(hidden.after, batch.next_masks), next_noise)
        next_values = target.values(encode_next(target, batch), following.actions)
        targets = batch.rewards + batch.discounts * soft_values(following, next_values, alphas, branches)

    encoded = encode(critic, batch)
    values = values_of_actions(critic.values(encoded, batch.actions), batch.choices)

    drawn = draw(policy.act(hidden.now, batch.masks), own_noise)
    with critic.frozen():
        drawn_values = critic.values(encoded.detach(), drawn.actions)
    entropies = mean_entropies(drawn, branches)
    return SACLosses(
        critic_loss(values, targets),
        policy_loss(drawn, drawn_values, alphas, branches),
        temperature_loss(temperatures.logarithms(), entropies, temperatures.targets(batch.masks)),
        values.detach(),
        targets,
        entropies,
    )


class SACTrainer(OffPolicyTrainer):
    """Soft actor-critic over replay memory; see ``sac.md``.

    Args:
        context: everything from outside.

    Raises:
        UserError: the settings do not fit the behavior.
    """

    networks: SACNetworks

    def __init__(self, context: TrainerContext) -> None:
        self._tau = self.own_hyperparameters(context, SACHyperparameters).tau
        super().__init__(context)

    @classmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> SACNetworks:
        """Builds what acts, twin critics with their slow copies, and the temperatures."""
        hyper, network = settings.hyperparameters, settings.network_settings
        if not isinstance(hyper, SACHyperparameters):
            raise TypeError(f"{type(hyper).__name__} are not hyperparameters of sac")
        policy = SquashedPolicyNetwork(spec, network, generator)
        critic = TwinCritic(spec, network, len(settings.reward_signals.active()), generator)
        return SACNetworks(policy, critic, Temperatures(spec.action, hyper.init_entcoef))

    @classmethod
    def minibatch_bytes(cls, network: nn.Module, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts what a minibatch takes, by its losses."""
        if not isinstance(network, SACNetworks):
            raise TypeError(f"{type(network).__name__} is none of sac")

        def loss(batch: Batch) -> Tensor:
            noise = None if batch.draws is None else batch.draws.expand(2, *batch.draws.shape)
            losses = minibatch_losses(network, batch, noise)
            return losses.critics + losses.policy + losses.temperatures

        return minibatch_bytes(network, spec, settings, loss)

    def build_optimizers(self) -> dict[str, FlatAdam]:
        """Makes those of policy, critics and temperatures; `max_grad_norm` counts for the first two."""
        networks = self.networks
        critic = self.adam(networks.critic)
        self._target = SoftTarget(networks.target, networks.critic, critic, self._tau)
        temperatures = self.adam(networks.temperatures, clips=False)
        return {"policy": self.adam(networks.policy), "critic": critic, "temperatures": temperatures}

    def loss(self, batch: Batch) -> LossTerms:
        """Computes the sum of all losses."""
        self._last = losses = minibatch_losses(self.networks, batch, self.noise(2, len(batch.rewards)))
        total = losses.critics + losses.policy + losses.temperatures
        return LossTerms(total, {"policy_loss": losses.policy, "value_loss": losses.critics})

    def after_step(self) -> None:
        """Moves the target critics a little."""
        self._target.update()

    def measured(self) -> Mapping[str, Tensor]:
        """Returns what else is reported, by ML-Agents' names.

        There is no value network; ``Value Loss`` is the mean of the two critics' losses.
        """
        values, targets, (continuous, discrete) = self._last.values, self._last.targets, self._last.entropies
        first, second = 0.5 * (values - targets).square().mean((1, 2))
        found = {
            "Losses/Q1 Loss": first,
            "Losses/Q2 Loss": second,
            "Losses/Value Loss": 0.5 * (first + second),
            EXPLAINED_VARIANCE: 1.0 - (first + second) / targets.var(0, correction=0).mean(),
        }
        for name, value in zip(self.signals.names, targets.mean(0), strict=True):
            found[f"Policy/{name.capitalize()} Value"] = value
        entropy = bonus = torch.zeros_like(first)
        alpha, alphas = self.networks.temperatures.logarithms()
        if alpha is not None and continuous is not None:
            found["Policy/Continuous Entropy Coeff"] = alpha.exp()
            entropy, bonus = entropy + continuous, bonus - alpha.exp() * continuous
        if alphas is not None and discrete is not None:
            found["Policy/Discrete Entropy Coeff"] = alphas.exp().mean()
            entropy, bonus = entropy + discrete.sum(), bonus - (alphas.exp() * discrete).mean()
        return {**found, "entropy": entropy, "entropy_bonus": bonus}
