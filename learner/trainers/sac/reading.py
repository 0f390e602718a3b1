"""What the networks of SAC make of a minibatch: of steps by themselves, or of sequences that they remember.

Sequences are gone through with what was seen after their last step, once: what the networks know in the state after a
step is what they know in the next row, and no gradient goes through the last one. The policy begins with the memory that
its actor recorded, critics and targets with none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from learner.networks.body import BodyRecord
from learner.networks.encoders import Encoded
from learner.networks.memory import Unrolled
from learner.networks.policy import PolicyNetwork
from learner.networks.twin import TwinCritic

ACTING_STEPS: Final = 64
"""On so many steps a policy without memory is tried after a turn: one that has diverged shows it on any."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """How B steps are S sequences of R rows, packed (`learner.buffers.sequences.PackedRows`).

    Attributes:
        observations: ``[R, *shape]`` each.
        now: ``[B]`` int64, which of the R are the steps; what was seen after them are the rows from S on.
        batch_sizes: ``[L + 1]`` int64 on the CPU, sequences that have a row at each place.
        memory: ``[S, memory_size]``, what the policy remembered before each sequence.
    """

    observations: Sequence[Tensor]
    now: Tensor
    batch_sizes: Tensor
    memory: Tensor

    def after(self, rows: Tensor) -> Tensor:
        """Returns those of R rows that were seen after the steps, ``[B, ...]``."""
        return rows[self.memory.shape[0] :]


@dataclass(frozen=True, slots=True)
class Batch:
    """B steps drawn from replay memory.

    Attributes:
        observations: ``[B, *shape]`` each.
        next_observations: the same, after the step.
        actions: ``[B, n]`` in [-1, 1], or None without continuous actions.
        choices: ``[B, b]`` int64, each plus the offset of its branch, or None without discrete actions.
        masks: ``[B, A]``, or None if everything was always allowed.
        next_masks: the same, after the step.
        rewards: ``[B, K]`` float32, of the reward signals.
        terminated: ``[B]`` float32, 1 where nothing follows.
        remembered: how they are sequences, for networks with a memory, and only for those.
    """

    observations: Sequence[Tensor]
    next_observations: Sequence[Tensor]
    actions: Tensor | None
    choices: Tensor | None
    masks: Tensor | None
    next_masks: Tensor | None
    rewards: Tensor
    terminated: Tensor
    remembered: Remembered | None = None


class Acting(NamedTuple):
    """What a policy makes of a minibatch.

    Attributes:
        hidden: ``[B, size]``, what its heads see.
        next_hidden: the same, after the step; no gradient goes through it.
        body: for the way back.
    """

    hidden: Tensor
    next_hidden: Tensor
    body: BodyRecord


def record_policy(policy: PolicyNetwork, batch: Batch) -> Acting:
    """Computes what the heads of a policy see, and what `backward_policy` needs; under ``torch.no_grad``."""
    remembered = batch.remembered
    if remembered is None:
        # `record` computes the same as `forward`, and faster, although nothing goes back through it here.
        next_hidden, _ = policy.body.record(batch.next_observations)
        hidden, body = policy.body.record(batch.observations)
        return Acting(hidden, next_hidden, body)
    sequences = Unrolled(remembered.batch_sizes, remembered.memory)
    rows, body = policy.body.record(remembered.observations, sequences)
    return Acting(rows.index_select(0, remembered.now), remembered.after(rows), body)


def backward_policy(policy: PolicyNetwork, batch: Batch, acting: Acting, outer: Tensor) -> None:
    """Writes the gradient of every parameter of a policy's body.

    Args:
        policy: the policy.
        batch: what it was given.
        acting: of `record_policy`.
        outer: the loss's derivative with respect to ``acting.hidden``.
    """
    if batch.remembered is not None:
        rows = outer.new_zeros(batch.remembered.observations[0].shape[0], outer.shape[1])
        outer = rows.index_copy_(0, batch.remembered.now, outer)
    policy.body.backward(acting.body, outer)


def can_act(policy: PolicyNetwork, batch: Batch) -> Tensor:
    """Returns a scalar bool on the device: whether a policy's outputs are finite on the steps of a minibatch.

    All parameters may be numbers, and what they make of observations none: actors would have nothing to do.

    Args:
        policy: as it would be published next.
        batch: the newest minibatch.
    """
    masks = batch.masks
    if batch.remembered is not None:
        hidden = record_policy(policy, batch).hidden
    else:
        hidden, _ = policy.body.record([values[:ACTING_STEPS] for values in batch.observations])
        masks = None if masks is None else masks[:ACTING_STEPS]
    return policy.act(hidden, masks).is_finite()


def encode(critic: TwinCritic, batch: Batch) -> Encoded:
    """Encodes the B steps for critics; autograd watches if they learn something there."""
    remembered = batch.remembered
    sizes = None if remembered is None else remembered.batch_sizes[1:]  # without what was seen after the last steps
    with torch.set_grad_enabled(critic.encoder_learns):
        return critic.encode(batch.observations, sizes)


def encode_next(target: TwinCritic, batch: Batch) -> Encoded:
    """Encodes what was seen after the B steps, for target critics."""
    remembered = batch.remembered
    if remembered is None:
        return target.encode(batch.next_observations)
    values, goals = target.encode(remembered.observations, remembered.batch_sizes)
    return Encoded(remembered.after(values), None if goals is None else remembered.after(goals))
