"""The epochs of one update, which take most of the learner's time.

Statistics accumulate on the device. Only `target_kl` reads from the device and waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from learner.shared.exits import ExitCode, UserError
from learner.training.buffers.batches import Minibatches, Share, parts_of
from learner.training.buffers.columns import CONTINUOUS_ACTION, DISCRETE_ACTION, LOG_PROB
from learner.training.buffers.sequences import SequenceMinibatches
from learner.training.networks.policy import PolicyOutput
from learner.training.networks.value import Sequences
from learner.training.optimizers.adam import FlatAdam
from learner.training.optimizers.reduce import Reduce
from learner.training.trainers.actor_critic.divergence import DivergenceMeter
from learner.training.trainers.actor_critic.experience import (
    ADVANTAGE,
    OLD_BASELINES,
    OLD_VALUES,
    RETURNS,
    Experience,
)
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, Loss, LossTerms, require_terms

Evaluate = Callable[[Mapping[str, Tensor], Sequences | None], tuple[PolicyOutput, Tensor]]
"""Computes the outputs of policy and critic from the columns of a minibatch and the layout of its sequences."""


class EpochSums(NamedTuple):
    """Sums over the epochs of an update, on the device.

    Attributes:
        scalars: Scalars of the loss by name, summed over all minibatches or parts.
        log_ratio: Current minus recorded log-probability of whole actions, ``[N, 1]``, of the last epoch; each
            minibatch is measured before its optimizer step.
        drawn: Number of minibatches, or of their parts.
        epochs: Number of complete epochs.
    """

    scalars: Mapping[str, Tensor]
    log_ratio: Tensor
    drawn: int
    epochs: int


def run_epochs(
    evaluate: Evaluate,
    optimizer: FlatAdam,
    minibatches: Minibatches | SequenceMinibatches,
    experience: Experience,
    *,
    loss: Loss,
    coefficients: Coefficients,
    epochs: int,
    meter: DivergenceMeter,
    parts: int = 1,
    after_minibatch: Callable[[Mapping[str, Tensor]], None] | None = None,
) -> EpochSums:
    """Minimizes a loss over shuffled minibatches.

    Args:
        evaluate: Computes the outputs of actor and critic.
        optimizer: Optimizer of their parameters.
        minibatches: Draws the steps; draws whole sequences if the network has memory.
        experience: The steps to draw from.
        loss: The loss to minimize.
        coefficients: Weights of the loss terms.
        epochs: Passes over the steps, at least one.
        meter: Measures the divergence, and may end the update early.
        parts: Number of parts that make one minibatch. The gradient is the mean over all steps of the minibatch. Parts
            that do not fill a minibatch are left out, unless no minibatch is full.
        after_minibatch: Called with the columns of each part, to learn from them too.

    Raises:
        ValueError: There are no epochs.
        UserError: The loss, which can come from a package, returned an invalid result.
    """
    sums: Tensor | None = None
    names: tuple[str, ...] = ()
    all_drawn, complete, is_over = 0, 0, False
    reduce = optimizer.reduce
    while complete < epochs and not is_over:
        meter.begin_epoch(is_last=complete == epochs - 1)
        drawn, steps, taken = 0, 0, optimizer.steps
        for columns, sequences, counts in _drawn(minibatches, experience, reduce):
            reduce.has_rows = counts
            batch = _batch(columns)
            output, values = evaluate(columns, sequences)
            terms = loss(output, values, batch, coefficients)
            rows = batch.log_prob.shape[0] if reduce.has_rows else 0
            names = _named(loss, terms, names)
            if not steps:
                optimizer.zero_grad()
            (terms.total if parts == 1 else terms.total * rows).backward()
            meter.measure(output, batch)
            scalars = torch.stack([scalar.detach() for scalar in terms.scalars.values()])
            sums = scalars if sums is None else sums.add_(scalars)
            steps += rows
            drawn += 1
            if drawn % parts == 0:
                if is_over := not _combined(optimizer, meter, steps, 1.0 if parts == 1 else steps):
                    break
                optimizer.descend()
                steps = 0
                reduce.has_rows = counts
            if after_minibatch is not None:
                after_minibatch(columns)
        is_open = drawn % parts != 0 and optimizer.steps == taken and not is_over
        if is_open and _combined(optimizer, meter, steps, steps):
            optimizer.descend()
        all_drawn += drawn
        complete += not is_over
    if sums is None:
        raise ValueError(f"an update needs at least one epoch, got {epochs}")
    return EpochSums(dict(zip(names, sums.unbind(), strict=True)), meter.log_ratio(), all_drawn, complete)


def _combined(optimizer: FlatAdam, meter: DivergenceMeter, rows: int, weight: float) -> bool:
    """Combines the gradients and divergences of all learners; returns whether the optimizer may take the step."""
    optimizer.reduce.has_rows = rows > 0
    return meter.allows_step(optimizer.combine(weight or 1.0, rows, meter.sums()))


def _named(loss: Loss, terms: LossTerms, before: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of the scalars of a loss, which must be those of its last call, if any.

    Raises:
        UserError: The loss returned an invalid result.
    """
    if not before:
        require_terms(terms, loss)
    now = tuple(terms.scalars)
    if now == before or not before:
        return now
    name = getattr(loss, "__qualname__", type(loss).__name__)
    raise UserError(
        ExitCode.TRAINER_FAILED,
        f"the loss {name} reported first {', '.join(before)} and later {', '.join(now)}: names and order must stay "
        "the same",
    )


def _drawn(
    minibatches: Minibatches | SequenceMinibatches, experience: Experience, reduce: Reduce
) -> Iterator[tuple[dict[str, Tensor], Sequences | None, bool]]:
    """Draws the minibatches of one epoch, and tells of each whether its rows count."""
    if isinstance(minibatches, Minibatches):
        sizes = _sizes(experience.share, minibatches.batch_size, reduce)
        for columns, size in zip(
            minibatches.epoch(experience.sources, experience.steps, sizes), sizes or repeat(1), strict=False
        ):
            yield columns, None, size > 0
    elif experience.table is not None:
        sizes = _sizes(experience.share, minibatches.sequences, reduce)
        for (columns, sequences), size in zip(
            minibatches.epoch(experience.sources, experience.table, sizes), sizes or repeat(1), strict=False
        ):
            yield columns, sequences, size > 0


def _sizes(share: Share, size: int, reduce: Reduce) -> list[int] | None:
    """Returns the sizes of the minibatches of one of several learners; None for a single learner."""
    return None if reduce.ranks == 1 else parts_of(share, size, reduce.rank)


def _batch(columns: Mapping[str, Tensor]) -> Batch:
    return Batch(
        columns.get(CONTINUOUS_ACTION),
        columns.get(DISCRETE_ACTION),
        columns[LOG_PROB],
        columns[ADVANTAGE],
        columns[RETURNS],
        columns.get(OLD_VALUES),
        columns.get(OLD_BASELINES),
    )
