"""One update of SAC: where a learner spends its time. Nothing in here waits for the device or reads from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from learner.networks.encoders import Encoded
from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.optimizers.adam import FlatAdam, Snapshot
from learner.optimizers.reduce import Reduce
from learner.rewards.signals import SignalSet
from learner.settings.hyperparameters import SACHyperparameters
from learner.trainers.sac.batches import Batch, backward_policy, encode, encode_next, record_policy
from learner.trainers.sac.loss import (
    Draw,
    critic_loss,
    critic_targets,
    draw,
    policy_loss,
    policy_loss_at_values,
    soft_values,
    temperature_loss,
)
from learner.trainers.sac.networks import SACNetworks, TargetEntropies


class Report(NamedTuple):
    """What the last update was like, on the device.

    Attributes:
        policy_loss: scalar.
        critic_losses: ``[2]``.
        targets: ``[B, K]``, what the critics were driven at.
        drawn: of the policy, where the steps were taken.
        batch: the minibatch, or its last part; so all above.
    """

    policy_loss: Tensor
    critic_losses: Tensor
    targets: Tensor
    drawn: Draw
    batch: Batch


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

    @torch.no_grad()
    def update(self, minibatch: Iterable[Batch], steps: Sequence[int]) -> Report:
        """Takes one gradient step of everything, and moves the target critics a little.

        Args:
            minibatch: its parts, each read when it is asked for; the gradient is the mean over the steps of all.
            steps: how many steps each part has.

        Returns:
            What the last part was like.
        """
        noises = self._noise(sum(steps))
        report: Report | None = None
        for batch, *noise in zip(minibatch, *(_split(noise, steps) for noise in noises), strict=True):
            report = self._learn(batch, *noise)
            if len(steps) > 1:
                for optimizer in self.optimizers.values():
                    optimizer.accumulate(batch.rewards.shape[0])
        if report is None:
            raise ValueError("a minibatch without parts")
        for optimizer in (self.critic_optimizer, self.policy_optimizer, self.temperature_optimizer):
            optimizer.step()
        self._target.lerp_(self.critic_optimizer.parameters, self._tau)
        return report

    def _learn(self, batch: Batch, noise: Tensor | None, next_noise: Tensor | None) -> Report:
        """Writes the gradients of everything."""
        networks, branches = self.networks, self.branches
        alphas = networks.temperatures.alphas()

        acting = record_policy(networks.policy, batch)
        following = draw(networks.policy.act(acting.next_hidden, batch.next_masks), next_noise)
        next_values, _ = networks.target.record(encode_next(networks.target, batch), following.actions)
        soft = soft_values(following, next_values, alphas, branches)
        targets = critic_targets(batch.rewards, batch.terminated, soft, self._gamma, self._ignores_ends)

        critic = networks.critic
        encoded = encode(critic, batch)
        detached = Encoded(encoded.values.detach(), None if encoded.goals is None else encoded.goals.detach())
        values, record = critic.record(encoded if critic.conditioned is not None else detached, batch.actions)
        to_values, critic_losses = critic_loss(values, batch.choices, targets)

        drawn = draw(networks.policy.act(acting.hidden, batch.masks), noise)
        drawn_values, drawn_record = critic.record(detached, drawn.actions)
        to_actions = None
        if drawn.actions is not None:
            to_actions = critic.to_actions(drawn_record, policy_loss_at_values(drawn, drawn_values, branches))
        gradients, loss = policy_loss(drawn, drawn_values, to_actions, alphas, branches)

        critic.backward(record, encoded, to_values)
        to_hidden = networks.policy.heads_backward(acting.hidden, gradients, batch.masks)
        backward_policy(networks.policy, batch, acting, to_hidden)
        self._write_temperatures(drawn, batch.masks)
        return Report(loss, critic_losses, targets, drawn, batch)

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

    def _write_temperatures(self, drawn: Draw, masks: Tensor | None) -> None:
        temperatures = self.networks.temperatures
        targets = (self._entropies.continuous, self._entropies.discrete(masks))
        found = temperature_loss(drawn, targets, self.branches)
        for parameter, gradient in zip((temperatures.continuous, temperatures.discrete), found, strict=True):
            if parameter is not None and parameter.grad is not None and gradient is not None:
                parameter.grad.copy_(gradient)


def _split(noise: Tensor | None, steps: Sequence[int]) -> Sequence[Tensor | None]:
    """Splits noise ``[B, n]`` by the steps of parts."""
    return [None] * len(steps) if noise is None else torch.split(noise, list(steps))
