"""The epochs of one update: where a learner spends its time.

Nothing in here waits for the device or reads from it; statistics accumulate there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from learner.buffers.batches import Minibatches
from learner.buffers.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, LOG_PROB
from learner.buffers.sequences import SequenceMinibatches
from learner.networks.value import ActorCritic, Sequences
from learner.optimizers.adam import FlatAdam
from learner.trainers.actor_critic.experience import ADVANTAGE, RETURNS, Experience
from learner.trainers.actor_critic.loss import Batch, Coefficients, Diagnostics, Loss


class EpochSums(NamedTuple):
    """What the epochs leave behind, on the device.

    Attributes:
        losses: ``[3]``, sums over all that was drawn of policy loss, value loss and entropy.
        last: of the last minibatch, or of its last part.
        drawn: how many minibatches, or parts of such.
    """

    losses: Tensor
    last: Diagnostics
    drawn: int


@torch.no_grad()
def run_epochs(
    network: ActorCritic,
    optimizer: FlatAdam,
    minibatches: Minibatches | SequenceMinibatches,
    experience: Experience,
    *,
    loss: Loss,
    observations: tuple[str, ...],
    coefficients: Coefficients,
    epochs: int,
    parts: int = 1,
    after_minibatch: Callable[[Mapping[str, Tensor]], None] | None = None,
) -> EpochSums:
    """Descends a loss over shuffled minibatches.

    Args:
        network: actor and critic.
        optimizer: of their parameters.
        minibatches: how steps are drawn; whole sequences if the network has a memory.
        experience: what is drawn from.
        loss: what is descended.
        observations: names of the observation columns.
        coefficients: weights of the loss.
        epochs: passes over the steps, at least one.
        parts: how many of what is drawn make one minibatch, whose gradient is the mean over all its steps. Parts that
            make no whole minibatch are left out, unless there is no whole one.
        after_minibatch: learns from the columns of each part, too; it may use autograd.
    """
    branches = network.policy.spec.action.discrete_branches
    losses: Tensor | None = None
    all_drawn = 0
    for _ in range(epochs):
        drawn, taken = 0, optimizer.steps
        for columns, sequences in _drawn(minibatches, experience):
            seen = [columns[name] for name in observations]
            output, values, record = network.record(seen, columns.get(ACTION_MASK), sequences)
            gradients, diagnostics = loss(output, values, _batch(columns), coefficients, branches)
            network.backward(record, gradients)
            terms = torch.stack(diagnostics[:3])
            losses = terms if losses is None else losses.add_(terms)
            drawn += 1
            if parts > 1:
                optimizer.accumulate(columns[LOG_PROB].shape[0])
            if drawn % parts == 0:
                optimizer.step()
            if after_minibatch is not None:
                after_minibatch(columns)
        if optimizer.steps == taken:
            optimizer.step()
        optimizer.forget()
        all_drawn += drawn
    if losses is None:
        raise ValueError(f"an update needs at least one epoch, got {epochs}")
    return EpochSums(losses, diagnostics, all_drawn)


def _drawn(
    minibatches: Minibatches | SequenceMinibatches, experience: Experience
) -> Iterator[tuple[dict[str, Tensor], Sequences | None]]:
    """Draws the minibatches of one epoch."""
    if isinstance(minibatches, Minibatches):
        for columns in minibatches.epoch(experience.sources, experience.steps):
            yield columns, None
    elif experience.table is not None:
        yield from minibatches.epoch(experience.sources, experience.table)


def _batch(columns: Mapping[str, Tensor]) -> Batch:
    return Batch(
        columns.get(CONTINUOUS_ACTION),
        columns.get(DISCRETE_ACTION),
        columns[LOG_PROB],
        columns[ADVANTAGE],
        columns[RETURNS],
    )
