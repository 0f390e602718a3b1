"""Behavioral cloning: the policy imitates recorded demonstrations, in addition to other learning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from rollcast.enums import Squash
from torch import Tensor

from learner.shared.settings.trainer import BehavioralCloningSettings, TrainerSettings
from learner.training.buffers.sequences import cut_segments, pack
from learner.training.buffers.transfer import to_device
from learner.training.networks.distributions import branch_offsets, categorical_log_prob, gaussian_log_prob
from learner.training.networks.lstm import Unrolled
from learner.training.networks.policy import PolicyNetwork, PolicyOutput
from learner.training.optimizers.adam import ListedAdam
from learner.training.rewards.demonstrations import DemonstrationBuffer
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.schedules import LEARNING_RATE_FLOOR, ScheduledValue

DEFAULT_EPOCHS = 3
STATISTIC = "Losses/Pretraining Loss"
LEAST_LOG_STD = math.log(0.1)
"""Floor of the log standard deviation. The deviation is a thirtieth of the draw that CLIP3_DIV3 maps to 1; cloning
leaves this exploration for reinforcement learning."""


class CloningBatch(NamedTuple):
    """Some demonstrated steps.

    Attributes:
        expert: The demonstrated transitions, with the observations that the policy reads.
        action_masks: Uint8 ``[B, sum(branches)]``, 1 = allowed; None if everything was allowed.
        sequences: Layout of the sequences, for a network with memory.
    """

    expert: Transitions
    action_masks: Tensor | None
    sequences: Unrolled | None


def cloning_loss(output: PolicyOutput, expert: Transitions, offsets: Tensor) -> Tensor:
    """Computes the mean negative log-likelihood of demonstrated steps, summed over axes and branches; in nats.

    For discrete branches this is the cross entropy of ML-Agents, restricted to allowed choices: ``output`` was computed
    with their masks. For continuous axes ML-Agents uses the squared distance between a sampled action and the
    demonstrated one. The likelihood has the same minimum in the mean, no sampling noise, no clip beyond which gradients
    vanish, and a spread that ends at the remaining error instead of falling without end. From 10 episodes of Pendulum,
    1,200 minibatches of 256, three seeds, deterministic returns: sampled distance -435 to -522, its expectation in
    closed form -207 to -231, likelihood -189 to -192; the expert has -185, and chance -1,227.

    Args:
        output: Output of the policy, ``[B, ...]``.
        expert: B steps; continuous actions as draws.
        offsets: Offset of the choices of each branch (`branch_offsets`), on their device.
    """
    loss = torch.zeros((), device=expert.reward.device)
    if output.mean is not None and output.log_std is not None and expert.continuous is not None:
        # Below the floor, the gradient of the spread is 0, and the gradient of the mean stops growing.
        log_std = output.log_std.clamp(min=LEAST_LOG_STD)
        loss = loss - gaussian_log_prob(output.mean, log_std, expert.continuous).sum(1).mean()
    if output.logits is not None and expert.discrete is not None:
        loss = loss - categorical_log_prob(output.logits, expert.discrete + offsets).sum(1).mean()
    return loss


class BehavioralCloning:
    """Imitates demonstrations with a separate Adam over the policy, after each update of the trainer.

    Args:
        settings: The block of the run file.
        policy: The policy that imitates, on its device.
        buffer: The demonstrations, with the observations that the policy reads.
        context: Context of the trainer.
    """

    def __init__(
        self,
        settings: BehavioralCloningSettings,
        policy: PolicyNetwork,
        buffer: DemonstrationBuffer,
        context: TrainerContext,
    ) -> None:
        trainer = context.behavior.settings
        self._policy = policy
        self._buffer = buffer
        self._device = context.device
        self._epochs = settings.num_epoch or DEFAULT_EPOCHS
        self._batch_size = min(settings.batch_size or trainer.hyperparameters.batch_size, len(buffer))
        self._most_batches = (
            max(1, settings.samples_per_update // self._batch_size) if settings.samples_per_update else 0
        )
        memory = trainer.network_settings.memory
        self._sequence_length = 0 if memory is None else memory.sequence_length
        self._settings = settings
        self.use(trainer)
        self._optimizer = ListedAdam(policy, context.reduce)
        self._order = torch.Generator().manual_seed(context.seed)
        self._offsets = branch_offsets(policy.spec.action.discrete_branches, context.device)
        self._sum = torch.zeros((), dtype=torch.float64, device=context.device)
        self._reported = 0

    def use(self, trainer: TrainerSettings) -> None:
        """Takes over the trainer's learning rate."""
        settings, initial = self._settings, trainer.hyperparameters.learning_rate * self._settings.strength
        self._learning_rate = ScheduledValue(
            "linear" if settings.steps else "constant", initial, LEARNING_RATE_FLOOR, settings.steps
        )

    def update(self, step: int, most: int | None = None) -> None:
        """Imitates for some epochs; reads nothing back from the device.

        Args:
            step: Step of the trainer. Nothing is done once the learning rate has fallen to its floor.
            most: Largest number of minibatches over all epochs; None sets no limit.
        """
        learning_rate = self._learning_rate.at(step)
        if learning_rate <= LEARNING_RATE_FLOOR:
            return
        batches = chain.from_iterable(self._epoch() for _ in range(self._epochs))
        for batch in islice(batches, most):
            observations = self._policy.placed(batch.expert.observations)
            output = self._policy.unroll(observations, batch.action_masks, batch.sequences)
            loss = cloning_loss(output, batch.expert, self._offsets)
            self._optimizer.step(loss, learning_rate)
            self._sum += loss.detach()

    def statistics(self) -> dict[str, float]:
        """Returns the mean loss since the last call; empty if no update ran. Waits for the device."""
        count = self._optimizer.steps - self._reported
        if count <= 0:
            return {}
        mean = float(self._sum) / count
        self._forget_sums()
        return {STATISTIC: mean}

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether losses and moments are finite."""
        return self._optimizer.is_finite() & self._sum.isfinite()

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the optimizer's and the shuffling generator's states."""
        return {"optimizer": self._optimizer.state_dict(), "order": self._order.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a saved state and discards unreported values.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: The state does not fit.
        """
        self._optimizer.load_state_dict(state["optimizer"])
        self._order.set_state(state["order"].cpu())
        self._forget_sums()

    def _forget_sums(self) -> None:
        self._sum.zero_()
        self._reported = self._optimizer.steps

    def _epoch(self) -> Iterator[CloningBatch]:
        """Yields the minibatches of one pass, at most as many as an update may take; leaves out the rest."""
        if self._sequence_length:
            yield from self._sequences()
            return
        order = to_device(torch.randperm(len(self._buffer), generator=self._order).numpy(), self._device)
        for steps in torch.split(order, self._batch_size)[: self._batches(len(order), self._batch_size)]:
            yield self._batch(steps)

    def _sequences(self) -> Iterator[CloningBatch]:
        """Yields minibatches of whole sequences that start without memory."""
        cut = cut_segments(self._buffer.lengths, self._sequence_length)
        order = torch.randperm(len(cut.starts), generator=self._order).numpy()
        size = min(max(1, self._batch_size // self._sequence_length), len(order))
        for batch in range(self._batches(len(order), size)):
            packed = pack(cut, order[batch * size : (batch + 1) * size])
            memory = torch.zeros(len(packed.order), self._policy.memory_size, device=self._device)
            steps = to_device(np.ascontiguousarray(packed.steps), self._device)
            yield self._batch(steps, Unrolled(torch.from_numpy(np.ascontiguousarray(packed.batch_sizes)), memory))

    def _batch(self, steps: Tensor, sequences: Unrolled | None = None) -> CloningBatch:
        return CloningBatch(self._buffer.at(steps), self._buffer.masks_at(steps), sequences)

    def _batches(self, count: int, size: int) -> int:
        return min(count // size, self._most_batches) if self._most_batches else count // size


def build_cloning(
    context: TrainerContext, policy: PolicyNetwork, squash: Squash = Squash.CLIP3_DIV3
) -> BehavioralCloning | None:
    """Builds the cloning that a run file requests under ``behavioral_cloning``; None without that block.

    Args:
        context: Context of the trainer.
        policy: The policy, on its device.
        squash: How actors squash a continuous draw.

    Raises:
        UserError: The demonstrations cannot be read or belong to another behavior.
    """
    settings = context.behavior.settings.behavioral_cloning
    if settings is None:
        return None
    setting = f"behaviors.{context.behavior.name}.behavioral_cloning.demo_path"
    buffer = DemonstrationBuffer.load(
        settings.demo_path,
        context.behavior.spec,
        context.device,
        squash,
        setting=setting,
        pairing=settings.demo_pairing,
        left_out=context.behavior.settings.network_settings.critic_only,
    )
    return BehavioralCloning(settings, policy, buffer, context)
