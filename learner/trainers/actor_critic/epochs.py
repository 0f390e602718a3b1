"""The epochs of one update, in which a learner spends its time.

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
from learner.common.exits import ExitCode, UserError
from learner.networks.value import ActorCritic, Sequences
from learner.optimizers.adam import FlatAdam
from learner.trainers.actor_critic.experience import ADVANTAGE, OLD_VALUES, RETURNS, Experience
from learner.trainers.actor_critic.loss import Batch, Coefficients, Loss, log_probability, require_terms


class EpochSums(NamedTuple):
    """What the epochs leave behind, on the device.

    Attributes:
        scalars: what the loss reports, by name: sums over all that was drawn.
        log_ratio: log-probability now minus recorded, ``[B, F]`` or ``[B, 1]``, of the last minibatch or its last part, before
            its step.
        drawn: how many minibatches, or parts of such.
    """

    scalars: Mapping[str, Tensor]
    log_ratio: Tensor
    drawn: int


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
        after_minibatch: learns from the columns of each part, too.

    Raises:
        ValueError: there are no epochs.
        UserError: the loss, which may be a package's, returned something else than it must.
    """
    sums: Tensor | None = None
    all_drawn = 0
    for _ in range(epochs):
        drawn, steps, taken = 0, 0, optimizer.steps
        for columns, sequences in _drawn(minibatches, experience):
            batch = _batch(columns)
            seen = [columns[name] for name in observations]
            output, values = network.forward(seen, columns.get(ACTION_MASK), sequences)
            terms = loss(output, values, batch, coefficients)
            if sums is None:
                require_terms(terms, loss)
                names = tuple(terms.scalars)
            elif tuple(terms.scalars) != names:
                raise _renamed(loss, names, tuple(terms.scalars))
            if not steps:
                optimizer.zero_grad()
            if parts == 1:
                terms.total.backward()
                optimizer.step()
            else:
                rows = batch.log_prob.shape[0]
                (terms.total * rows).backward()
                steps += rows
            scalars = torch.stack([scalar.detach() for scalar in terms.scalars.values()])
            sums = scalars if sums is None else sums.add_(scalars)
            drawn += 1
            if steps and drawn % parts == 0:
                optimizer.step(steps)
                steps = 0
            if after_minibatch is not None:
                after_minibatch(columns)
        if steps and optimizer.steps == taken:
            optimizer.step(steps)
        all_drawn += drawn
    if sums is None:
        raise ValueError(f"an update needs at least one epoch, got {epochs}")
    named = dict(zip(names, sums.unbind(), strict=True))
    with torch.no_grad():
        log_prob = log_probability(output, batch.continuous, batch.discrete, coefficients.ratio)
        return EpochSums(named, log_prob - batch.log_prob, all_drawn)


def _renamed(loss: Loss, before: tuple[str, ...], now: tuple[str, ...]) -> UserError:
    name = getattr(loss, "__qualname__", type(loss).__name__)
    return UserError(
        ExitCode.TRAINER_FAILED,
        f"the loss {name} reported {', '.join(before)}, and then {', '.join(now)}: their names and order must be the same each time",
    )


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
        columns.get(OLD_VALUES),
    )
