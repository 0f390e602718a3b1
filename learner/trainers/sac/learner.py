"""One update of SAC: where a learner spends its time. Nothing in here waits for the device or reads from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.optimizers.adam import FlatAdam, Snapshot
from learner.optimizers.reduce import Reduce
from learner.rewards.signals import SignalSet
from learner.settings.hyperparameters import SACHyperparameters
from learner.trainers.sac.batches import Batch, encode, encode_next, hidden_of
from learner.trainers.sac.loss import (
    Entropies,
    critic_loss,
    critic_targets,
    draw,
    mean_entropies,
    policy_loss,
    soft_values,
    temperature_loss,
    values_of_actions,
)
from learner.trainers.sac.networks import SACNetworks, TargetEntropies


class Report(NamedTuple):
    """What the last update was like, on the device and without a gradient.

    Attributes:
        policy_loss: scalar.
        values: ``[2, B, K]``, what the critics said of the actions that were taken.
        targets: ``[B, K]``, what the critics were driven at.
        entropies: of the policy, where the steps were taken.
        batch: the minibatch, or its last part; so all above.
    """

    policy_loss: Tensor
    values: Tensor
    targets: Tensor
    entropies: Entropies
    batch: Batch

    @property
    def critic_losses(self) -> Tensor:
        """``[2]``, half the mean squared error of each critic."""
        return 0.5 * (self.values - self.targets).square().mean((1, 2))


class Restorable(NamedTuple):
    """What an update that was not finite goes back to."""

    policy: Snapshot
    critic: Snapshot
    temperatures: Snapshot
    target: Tensor


class SACLearner:
    """Networks and their optimizers. All gradients of an update are taken at the same parameters, as in ML-Agents.

    Args:
        networks: on their device.
        hyper: of the run file.
        signals: whose discounts count.
        reduce: combines gradients over several learners.
        generator: of the noise, on the device.

    Attributes:
        networks: what is trained.
        branches: number of choices of each discrete branch.
        policy_optimizer, critic_optimizer, temperature_optimizer: of each.
    """

    def __init__(
        self,
        networks: SACNetworks,
        hyper: SACHyperparameters,
        signals: SignalSet,
        reduce: Reduce,
        generator: torch.Generator,
    ) -> None:
        self.networks = networks
        action = networks.policy.spec.action
        self._axes = action.continuous_size
        self.branches = tuple(action.discrete_branches)
        self._device = signals.gamma.device
        self._tau = hyper.tau
        self._generator = generator
        self._gamma = signals.gamma.float()
        self._ignores_ends = signals.ignores_ends
        self._entropies = TargetEntropies(action, self._device)

        def adam(network: SquashedPolicyNetwork | TwinCritic) -> FlatAdam:
            return FlatAdam(
                network, hyper.learning_rate, reduce, epsilon=hyper.adam_epsilon, max_grad_norm=hyper.max_grad_norm
            )

        self.policy_optimizer = adam(networks.policy)
        self.critic_optimizer = adam(networks.critic)
        self.temperature_optimizer = FlatAdam(
            networks.temperatures, hyper.learning_rate, reduce, epsilon=hyper.adam_epsilon
        )
        self._target = networks.flatten_target()

    @property
    def optimizers(self) -> dict[str, FlatAdam]:
        """The optimizers, by the network that each trains."""
        return {
            "policy": self.policy_optimizer,
            "critic": self.critic_optimizer,
            "temperatures": self.temperature_optimizer,
        }

    def update(self, minibatch: Iterable[Batch], steps: Sequence[int]) -> Report:
        """Takes one gradient step of everything, and moves the target critics a little.

        Args:
            minibatch: its parts, each read when it is asked for; the gradient is the mean over the steps of all.
            steps: how many steps each part has.

        Returns:
            What the last part was like.
        """
        noises = self._noise(sum(steps))
        optimizers = (self.critic_optimizer, self.policy_optimizer, self.temperature_optimizer)
        for optimizer in optimizers:
            optimizer.zero_grad()
        report: Report | None = None
        for batch, *noise in zip(minibatch, *(_split(noise, steps) for noise in noises), strict=True):
            loss, report = self._loss(batch, *noise)
            if len(steps) > 1:
                loss = loss * batch.rewards.shape[0]
            torch.autograd.backward(loss)
        if report is None:
            raise ValueError("a minibatch without parts")
        for optimizer in optimizers:
            optimizer.step(sum(steps) if len(steps) > 1 else 1.0)
        self._target.lerp_(self.critic_optimizer.parameters, self._tau)
        return report

    def _loss(self, batch: Batch, noise: Tensor | None, next_noise: Tensor | None) -> tuple[Tensor, Report]:
        """Computes the sum of all losses; each parameter has a gradient in one of them only."""
        networks, branches = self.networks, self.branches
        alphas = networks.temperatures.alphas()
        policy, critic, target = networks.policy, networks.critic, networks.target

        hidden = hidden_of(policy, batch)
        with torch.no_grad():
            following = draw(policy.act(hidden.after, batch.next_masks), next_noise)
            next_values = target.values(encode_next(target, batch), following.actions)
            soft = soft_values(following, next_values, alphas, branches)
            targets = critic_targets(batch.rewards, batch.terminated, soft, self._gamma, self._ignores_ends)

        encoded = encode(critic, batch)
        told = values_of_actions(critic.values(encoded, batch.actions), batch.choices)
        of_critics = critic_loss(told, targets)

        drawn = draw(policy.act(hidden.now, batch.masks), noise)
        with critic.frozen():
            values = critic.values(encoded.detach(), drawn.actions)
        of_policy = policy_loss(drawn, values, alphas, branches)

        entropies = mean_entropies(drawn, branches)
        of_temperatures = temperature_loss(
            networks.temperatures.logarithms(), entropies, self._entropies.where(batch.masks)
        )
        report = Report(of_policy.detach(), told.detach(), targets, entropies, batch)
        return of_critics + of_policy + of_temperatures, report

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the size of the next steps."""
        for optimizer in self.optimizers.values():
            optimizer.learning_rate = learning_rate

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether all parameters and moments are finite."""
        found = self._target.isfinite().all()
        for optimizer in self.optimizers.values():
            found = found & optimizer.is_finite()
        return found

    def snapshot(self) -> Restorable:
        """Copies parameters and moments."""
        return Restorable(
            self.policy_optimizer.snapshot(),
            self.critic_optimizer.snapshot(),
            self.temperature_optimizer.snapshot(),
            self._target.clone(),
        )

    def restore(self, snapshot: Restorable) -> None:
        """Goes back to a snapshot."""
        self.policy_optimizer.restore(snapshot.policy)
        self.critic_optimizer.restore(snapshot.critic)
        self.temperature_optimizer.restore(snapshot.temperatures)
        self._target.copy_(snapshot.target)

    def _noise(self, steps: int) -> tuple[Tensor | None, Tensor | None]:
        if not self._axes:
            return None, None
        both = torch.randn((2, steps, self._axes), generator=self._generator, device=self._device)
        return both[0], both[1]


def _split(noise: Tensor | None, steps: Sequence[int]) -> Sequence[Tensor | None]:
    """Splits noise ``[B, n]`` by the steps of parts."""
    return [None] * len(steps) if noise is None else torch.split(noise, list(steps))
