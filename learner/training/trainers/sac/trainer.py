"""The SAC trainer: off-policy actor-critic with learned temperatures, on a replay memory filled by many actors."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch
from rollcast.specs import ActionSpec, BehaviorSpec
from torch import Tensor, nn

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import RealOrAuto
from learner.shared.settings.hyperparameters import SACHyperparameters
from learner.shared.settings.trainer import TrainerSettings
from learner.training.networks.kept import KeptBytes
from learner.training.networks.policy import build_policy
from learner.training.networks.squashed import SquashedPolicyNetwork, draw
from learner.training.networks.twin import TwinCritic, values_of_actions
from learner.training.optimizers.adam import FlatAdam
from learner.training.optimizers.soft_target import SoftTarget
from learner.training.trainers.actor_critic.loss import LossTerms
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.off_policy import EXPLAINED_VARIANCE, OffPolicyTrainer, minibatch_bytes
from learner.training.trainers.replay_batches import Batch, encode, encode_next, hidden_of
from learner.training.trainers.sac.loss import (
    Alphas,
    Entropies,
    critic_loss,
    mean_entropies,
    policy_loss,
    soft_values,
    temperature_loss,
)

DISCRETE_ENTROPY_SHARE: Final = 0.2
"""Target entropy of a branch, as a share of its largest entropy; as in ML-Agents."""
_SMALLEST_ALPHA: Final = 1e-8
"""Least initial temperature: 0 has no logarithm."""


class SACLosses(NamedTuple):
    """The losses of a minibatch and their inputs, on the device; only the losses have gradients.

    Attributes:
        critics: Scalar, loss of both critics.
        policy: Scalar.
        temperatures: Scalar, loss of all temperatures; 0 if they are fixed.
        values: ``[2, B, K]``, values of the actions that were taken.
        targets: ``[B, K]``, targets of the critics.
        entropies: Entropies of the policy at the steps.
    """

    critics: Tensor
    policy: Tensor
    temperatures: Tensor
    values: Tensor
    targets: Tensor
    entropies: Entropies


def minibatch_losses(networks: SACNetworks, batch: Batch, noise: Tensor | None) -> SACLosses:
    """Computes all losses at the same parameters; each parameter has a gradient in one loss only.

    Args:
        networks: Networks on the device of the minibatch.
        batch: The minibatch.
        noise: ``[2, B, n]`` standard normal noise for the actions at the steps and after them; None without continuous
            actions.
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
    of_temperatures = targets.new_zeros(())
    if temperatures.learns:
        of_temperatures = temperature_loss(temperatures.logarithms(), entropies, temperatures.targets(batch.masks))
    return SACLosses(
        critic_loss(values, targets),
        policy_loss(drawn, drawn_values, alphas, branches),
        of_temperatures,
        values.detach(),
        targets,
        entropies,
    )


class SACTrainer(OffPolicyTrainer):
    """Trains soft actor-critic on replay memory; see ``sac.md``.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    settings_model = SACHyperparameters
    networks: SACNetworks

    def __init__(self, context: TrainerContext) -> None:
        self._settings = self.own_hyperparameters(context, SACHyperparameters)
        super().__init__(context)

    @classmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> SACNetworks:
        """Builds the policy, twin critics with slowly following copies, and the temperatures."""
        hyper, network = settings.hyperparameters, settings.network_settings
        if not isinstance(hyper, SACHyperparameters):
            raise TypeError(f"{type(hyper).__name__} is not the type of sac's hyperparameters")
        policy = build_policy(SquashedPolicyNetwork, spec, network, generator)
        critic = TwinCritic(spec, network, len(settings.reward_signals.active()), generator)
        return SACNetworks(policy, critic, _temperatures(spec, hyper))

    @classmethod
    def minibatch_bytes(cls, network: nn.Module, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts the bytes of a minibatch from its losses."""
        if not isinstance(network, SACNetworks):
            raise TypeError(f"{type(network).__name__} is not a network of sac")

        def loss(batch: Batch) -> Tensor:
            noise = None if batch.draws is None else batch.draws.expand(2, *batch.draws.shape)
            losses = minibatch_losses(network, batch, noise)
            return losses.critics + losses.policy + losses.temperatures

        return minibatch_bytes(network, spec, settings, loss)

    def build_optimizers(self) -> dict[str, FlatAdam]:
        """Creates the optimizers of policy, critics and learned temperatures; ``max_grad_norm`` clips the first two."""
        networks, hyper = self.networks, self._settings
        critic = self.adam(networks.critic)
        self._target = SoftTarget(networks.target, networks.critic, critic, hyper.tau)
        optimizers = {"policy": self.adam(networks.policy), "critic": critic}
        if networks.temperatures.learns:
            optimizers["temperatures"] = self.adam(networks.temperatures, clips=False)
        return optimizers

    def settings_changed(self) -> None:
        """Computes the schedules from the current settings, and takes over ``tau`` and ``target_entropy``."""
        self._settings = hyper = self.own_hyperparameters(self.context, SACHyperparameters)
        super().settings_changed()
        self._target.tau = hyper.tau
        self.networks.temperatures.aim_at(hyper.target_entropy)

    def obstacle_to(self, settings: TrainerSettings) -> str:
        """Returns why the settings do not fit the behavior's actions; empty if they do."""
        hyper = settings.hyperparameters
        return no_axes(self.context.behavior.spec, hyper) if isinstance(hyper, SACHyperparameters) else ""

    def initial_rate(self, optimizer: str) -> float:
        """Returns the learning rate of an optimizer at the start."""
        hyper = self._settings
        rates = {
            "policy": hyper.policy_learning_rate,
            "critic": hyper.critic_learning_rate,
            "temperatures": hyper.temperature_learning_rate,
        }
        rate = rates[optimizer]
        return hyper.learning_rate if rate is None else rate

    def load_model_state(self, state: Mapping[str, Any]) -> None:
        """Loads what `model_state` returned; fixed temperatures keep the value of the run file.

        Raises:
            ValueError, KeyError, TypeError, RuntimeError: The state does not fit.
        """
        super().load_model_state(state)
        self.networks.temperatures.reset_fixed()

    def loss(self, batch: Batch) -> LossTerms:
        """Computes the sum of all losses."""
        self._last = losses = minibatch_losses(self.networks, batch, self.noise(2, len(batch.rewards)))
        total = losses.critics + losses.policy + losses.temperatures
        return LossTerms(total, {"policy_loss": losses.policy, "value_loss": losses.critics})

    def after_step(self) -> None:
        """Moves the target critics towards the critics."""
        self._target.update()

    def measured(self) -> Mapping[str, Tensor]:
        """Returns further scalars to report, under ML-Agents' names.

        SAC has no value network; ``Value Loss`` is the mean of the two critics' losses.
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


def _temperatures(spec: BehaviorSpec, hyper: SACHyperparameters) -> Temperatures:
    """Builds the temperatures.

    Raises:
        UserError: The run file sets a target for a continuous action that the behavior does not have.
    """
    problem, coefficient = no_axes(spec, hyper), hyper.entcoef
    if problem:
        raise UserError(ExitCode.RUN_FILE, f"hyperparameters.{problem}: take it out")
    if coefficient == "auto":
        return Temperatures(spec.action, hyper.init_entcoef, axes_target=hyper.target_entropy)
    return Temperatures(spec.action, coefficient, learns=False)


def no_axes(spec: BehaviorSpec, hyper: SACHyperparameters) -> str:
    """Returns the problem of a target for a continuous action that a behavior does not have; empty without one."""
    target = hyper.target_entropy
    if target == "auto" or spec.action.continuous_size:
        return ""
    return f"target_entropy is {target:g}, but {spec.name} has no continuous action"


class Temperatures(nn.Module):
    """Holds the logarithms of the temperatures, learned or fixed, and the target entropies of the policy.

    The targets are ``-n`` for n continuous axes (Haarnoja et al. 2018, arXiv:1812.05905, appendix D) unless another one
    is given, and for each branch 0.2 of the logarithm of the number of choices, as in ML-Agents. Only allowed choices
    count: if a mask leaves one choice, no temperature could restore entropy, and the temperature would grow without end.

    Args:
        action: Actions of the behavior.
        initial: Initial value of every temperature.
        learns: False keeps the initial values, whatever is loaded.
        axes_target: Target entropy of the continuous action in nats; auto is ``-n``.

    Attributes:
        learns: Whether the temperatures are learned.
    """

    choice_branches: Tensor
    axes_target: Tensor
    branch_targets: Tensor

    def __init__(
        self, action: ActionSpec, initial: float, *, learns: bool = True, axes_target: RealOrAuto = "auto"
    ) -> None:
        super().__init__()
        self.learns = learns
        self._axes = action.continuous_size
        self._start = start = math.log(max(initial, _SMALLEST_ALPHA))
        branches = list(action.discrete_branches)
        self._branches = branches
        self.continuous = nn.Parameter(torch.full((), start)) if action.continuous_size else None
        self.discrete = nn.Parameter(torch.full((len(branches),), start)) if branches else None
        choices = [branch for branch, size in enumerate(branches) for _ in range(size)]
        constants = {
            "choice_branches": torch.tensor(choices, dtype=torch.int64),
            "axes_target": torch.zeros(()),
            "branch_targets": torch.tensor([DISCRETE_ENTROPY_SHARE * math.log(size) for size in branches]),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)
        self.requires_grad_(learns)
        self.aim_at(axes_target)

    def aim_at(self, target: RealOrAuto) -> None:
        """Sets the target entropy of the continuous action in nats; auto is ``-n``."""
        self.axes_target.fill_(-float(self._axes) if target == "auto" else target)

    @torch.no_grad()
    def reset_fixed(self) -> None:
        """Restores the initial temperatures if they are not learned; call it after loading a state."""
        if not self.learns:
            for logarithm in self.parameters():
                logarithm.fill_(self._start)

    def logarithms(self) -> Entropies:
        """Returns the logarithm of each temperature."""
        return Entropies(self.continuous, self.discrete)

    @torch.no_grad()
    def alphas(self) -> Alphas:
        """Returns the temperatures."""
        discrete = None if self.discrete is None else self.discrete.exp().index_select(0, self.choice_branches)
        return Alphas(None if self.continuous is None else self.continuous.exp(), discrete)

    def targets(self, masks: Tensor | None) -> Entropies:
        """Returns the target entropies as means over the steps of masks ``[B, A]``; None allows every choice."""
        if masks is None:
            return Entropies(self.axes_target, self.branch_targets)
        allowed = [part.sum(1, dtype=torch.float32) for part in torch.split(masks, self._branches, 1)]
        logarithms = torch.stack(allowed, 1).clamp(min=1.0).log()
        return Entropies(self.axes_target, DISCRETE_ENTROPY_SHARE * logarithms.mean(0))


class SACNetworks(nn.Module):
    """Holds all networks of SAC in one ``state_dict`` for a checkpoint.

    Args:
        policy: The acting network.
        critic: Twin critics.
        temperatures: Temperatures of the policy's entropy.

    Attributes:
        target: A copy of the critics.
        branches: Number of choices of each discrete branch.
    """

    def __init__(self, policy: SquashedPolicyNetwork, critic: TwinCritic, temperatures: Temperatures) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)
        self.temperatures = temperatures
        self.branches = tuple(policy.spec.action.discrete_branches)
