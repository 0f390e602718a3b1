"""Counts the bytes that a replay minibatch takes, on the meta device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.hyperparameters import ReplayHyperparameters
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.columns import ACTION_MASK, CONTINUOUS_ACTION, DISCRETE_ACTION, REWARD, observation_column
from learner.training.buffers.replay import replay_columns
from learner.training.networks.kept import Columns, KeptBytes, kept_bytes
from learner.training.trainers.replay_batches import Batch, Remembered

_NEXT = "next/"
_REMEMBERED = "remembered/"


def minibatch_bytes(
    networks: nn.Module, spec: BehaviorSpec, settings: TrainerSettings, loss: Callable[[Batch], Tensor]
) -> KeptBytes:
    """Counts the bytes that a minibatch takes.

    Args:
        networks: Networks on the meta device.
        spec: Observations and actions of the behavior.
        settings: The behavior's block of the run file.
        loss: Computes the loss of a minibatch on the meta device; with memory, the minibatch is one sequence.
    """
    memory, signals = settings.network_settings.memory, len(settings.reward_signals.active())
    memory_size = 0 if memory is None else memory.memory_size

    def columns(rows: int) -> dict[str, Tensor]:
        found = {column.name: torch.zeros((rows, *column.shape), dtype=column.dtype) for column in replay_columns(spec)}
        seen = [observation_column(observation.name) for observation in spec.observations]
        for name in (*seen, ACTION_MASK):
            if name in found:
                found[_NEXT + name] = torch.zeros_like(found[name])
        if memory_size:  # also the observation after the last step
            found |= {_REMEMBERED + name: torch.cat((found[name], found[name][:1])) for name in seen}
        return found

    counted = kept_bytes(networks, columns, lambda columns: loss(_batch(columns, spec, signals, memory_size)))
    hyper = settings.hyperparameters
    if not isinstance(hyper, ReplayHyperparameters) or not hyper.burn_in:
        return counted
    seen = {observation_column(observation.name) for observation in spec.observations}
    of_row = sum(column.row_bytes for column in replay_columns(spec) if column.name in seen) + counted.per_forward_row
    return counted._replace(per_row=counted.per_row - (-hyper.burn_in * of_row // settings.memory_stride))


def _batch(columns: Columns, spec: BehaviorSpec, signals: int, memory_size: int) -> Batch:
    seen = [observation_column(observation.name) for observation in spec.observations]
    rows, draws, choices = columns[REWARD].shape[0], columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION)
    per_signal = columns[REWARD].unsqueeze(1).expand(rows, signals)
    return Batch(
        [columns[name] for name in seen],
        [columns[_NEXT + name] for name in seen],
        draws,
        draws,
        None if choices is None else choices.long(),
        columns.get(ACTION_MASK),
        columns.get(_NEXT + ACTION_MASK),
        per_signal,
        per_signal,
        _remembered([columns[_REMEMBERED + name] for name in seen], rows, memory_size) if memory_size else None,
    )


def _remembered(observations: list[Tensor], rows: int, memory_size: int) -> Remembered:
    device = observations[0].device
    places = torch.ones(rows + 1, dtype=torch.int64)  # on the CPU, where LSTMs read them
    return Remembered(
        observations, torch.arange(rows, device=device), places, torch.zeros(1, memory_size, device=device)
    )
