"""Behavioral cloning: the policy imitates recorded demonstrations, beside whatever else it learns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from rollcast.enums import Squash
from torch import Tensor

from learner.buffers.sequences import cut_segments, pack
from learner.buffers.transfer import to_device
from learner.networks.distributions import branch_offsets, categorical_log_prob, gaussian_log_prob
from learner.networks.lstm import Unrolled
from learner.networks.policy import PolicyNetwork, PolicyOutput
from learner.optimizers.adam import ListedAdam
from learner.rewards.demonstrations import DemonstrationBuffer
from learner.rewards.transitions import Transitions
from learner.settings.trainer import BehavioralCloningSettings
from learner.trainers.base import TrainerContext
from learner.trainers.schedules import LEARNING_RATE_FLOOR, ScheduledValue

DEFAULT_EPOCHS = 3
STATISTIC = "Losses/Pretraining Loss"
LEAST_LOG_STD = math.log(0.1)
"""A thirtieth of what CLIP3_DIV3 makes 1 of: cloning leaves so much for reinforcement learning to explore with."""


class CloningBatch(NamedTuple):
    """Some demonstrated steps.

    Attributes:
        expert: the steps.
        action_masks: uint8 ``[B, sum(branches)]``, 1 = allowed; None if all was.
        sequences: how they are sequences, for a network with memory.
    """

    expert: Transitions
    action_masks: Tensor | None
    sequences: Unrolled | None


def cloning_loss(output: PolicyOutput, expert: Transitions, offsets: Tensor) -> Tensor:
    """The negative log-likelihood of what was demonstrated, summed over axes and branches, mean over steps; in nats.

    For discrete branches it is the cross entropy that ML-Agents has, but over the choices that were allowed: ``output`` was
    computed with their masks. For continuous axes ML-Agents takes the squared distance between an action that it samples
    and the demonstrated one. The likelihood has the same minimum in the mean, none of the sampling's noise, no clip beyond
    which there is no way back, and a spread that ends at the error that is left instead of falling without end. From 10
    episodes of Pendulum, 1,200 minibatches of 256, three seeds, deterministic returns: sampled distance -435 to -522, its
    expectation in closed form -207 to -231, likelihood -189 to -192; the expert has -185, and chance -1,227.

    Args:
        output: of the policy, ``[B, ...]``.
        expert: B steps; continuous actions as draws.
        offsets: where the choices of each branch begin (`branch_offsets`), on their device.
    """
    loss = torch.zeros((), device=expert.reward.device)
    if output.mean is not None and output.log_std is not None and expert.continuous is not None:
        # Below the floor its own gradient ends, and the mean's does not grow any more.
        log_std = output.log_std.clamp(min=LEAST_LOG_STD)
        loss = loss - gaussian_log_prob(output.mean, log_std, expert.continuous).sum(1).mean()
    if output.logits is not None and expert.discrete is not None:
        loss = loss - categorical_log_prob(output.logits, expert.discrete + offsets).sum(1).mean()
    return loss


class BehavioralCloning:
    """Imitates demonstrations with an Adam of its own over the policy, after each update of the trainer.

    Args:
        settings: the block of the run file.
        policy: what imitates, on its device.
        buffer: the demonstrations.
        context: the trainer's.
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
        self._sequence_length = context.behavior.memory_stride if policy.memory_size else 0
        initial = trainer.hyperparameters.learning_rate * settings.strength
        self._learning_rate = ScheduledValue(
            "linear" if settings.steps else "constant", initial, LEARNING_RATE_FLOOR, settings.steps
        )
        self._optimizer = ListedAdam(policy, context.reduce)
        self._order = torch.Generator().manual_seed(context.seed)
        self._offsets = branch_offsets(policy.spec.action.discrete_branches, context.device)
        self._sum = torch.zeros((), dtype=torch.float64, device=context.device)
        self._reported = 0

    def update(self, step: int) -> None:
        """Imitates for some epochs; reads nothing back from the device.

        Args:
            step: of the trainer. Once the learning rate has fallen to its floor, nothing is done any more.
        """
        learning_rate = self._learning_rate.at(step)
        if learning_rate <= LEARNING_RATE_FLOOR:
            return
        for _ in range(self._epochs):
            for batch in self._epoch():
                output = self._policy.unroll(batch.expert.observations, batch.action_masks, batch.sequences)
                loss = cloning_loss(output, batch.expert, self._offsets)
                self._optimizer.step(loss, learning_rate)
                self._sum += loss.detach()

    def statistics(self) -> dict[str, float]:
        """Returns the mean loss since the last call; nothing if nothing was imitated. Waits for the device."""
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
        """Returns the optimizer, and where the shuffling is; copies."""
        return {"optimizer": self._optimizer.state_dict(), "order": self._order.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a saved state; what was not reported yet is forgotten.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: it does not fit.
        """
        self._optimizer.load_state_dict(state["optimizer"])
        self._order.set_state(state["order"].cpu())
        self._forget_sums()

    def _forget_sums(self) -> None:
        self._sum.zero_()
        self._reported = self._optimizer.steps

    def _epoch(self) -> Iterator[CloningBatch]:
        """Yields the minibatches of one pass, at most as many as an update may take; what is left over is left out."""
        if self._sequence_length:
            yield from self._sequences()
            return
        order = to_device(torch.randperm(len(self._buffer), generator=self._order).numpy(), self._device)
        for steps in torch.split(order, self._batch_size)[: self._batches(len(order), self._batch_size)]:
            yield self._batch(steps)

    def _sequences(self) -> Iterator[CloningBatch]:
        """Yields minibatches of whole sequences, before which nothing is remembered."""
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
    """Builds what a run file asks for under ``behavioral_cloning``; None if it asks for nothing.

    Args:
        context: the trainer's.
        policy: on its device.
        squash: what actors do to a continuous draw.

    Raises:
        UserError: the demonstrations cannot be read, or are another behavior's.
    """
    settings = context.behavior.settings.behavioral_cloning
    if settings is None:
        return None
    setting = f"behaviors.{context.behavior.name}.behavioral_cloning.demo_path"
    buffer = DemonstrationBuffer.load(
        settings.demo_path, context.behavior.spec, context.device, squash, setting=setting
    )
    return BehavioralCloning(settings, policy, buffer, context)
