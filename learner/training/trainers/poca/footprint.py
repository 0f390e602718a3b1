"""Counts the bytes that a minibatch of POCA keeps for its backward pass, on the meta device."""

from __future__ import annotations

from typing import Final

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.training.buffers.columns import (
    ACTION_MASK,
    CONTINUOUS_ACTION,
    DISCRETE_ACTION,
    LOG_PROB,
    on_policy_columns,
)
from learner.training.networks.group import GroupActorCritic
from learner.training.networks.kept import Columns, KeptBytes, kept_bytes
from learner.training.networks.value import Sequences
from learner.training.trainers.actor_critic.loss import Batch, Coefficients
from learner.training.trainers.poca.experience import OF_MATES, PRESENT, mates_of
from learner.training.trainers.poca.loss import poca_loss

COUNTED_MATES: Final = 3
"""Mates of each agent that are counted. The size of groups is not known before experience arrives."""


def minibatch_bytes(network: GroupActorCritic, spec: BehaviorSpec) -> KeptBytes:
    """Counts the bytes of a minibatch whose agents have `COUNTED_MATES` mates each.

    Args:
        network: Network on the meta device.
        spec: Observations and actions of the behavior.
    """
    observations = tuple(f"obs/{observation.name}" for observation in spec.observations)

    def columns(rows: int) -> dict[str, Tensor]:
        own = {
            column.name: torch.zeros((rows, *column.shape), dtype=column.dtype) for column in on_policy_columns(spec)
        }
        mates = {
            OF_MATES + name: values.unsqueeze(1).repeat(1, COUNTED_MATES, *([1] * (values.dim() - 1)))
            for name, values in own.items()
            if name in {*observations, CONTINUOUS_ACTION, DISCRETE_ACTION}
        }
        return {**own, **mates, PRESENT: torch.ones(rows, COUNTED_MATES)}

    def loss(columns: Columns) -> Tensor:
        recorded = columns[LOG_PROB]
        rows = recorded.shape[0]
        seen = [columns[name] for name in observations]
        mates = mates_of(columns, observations)
        output, values = network(seen, columns.get(ACTION_MASK), mates, _sequence(network, rows))
        returns = torch.zeros_like(values[:, : values.shape[1] // 2])
        continuous, discrete = columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION)
        advantage = recorded.new_zeros(rows, 1)
        batch = Batch(continuous, discrete, recorded, advantage, returns, old_baselines=returns)
        coefficients = Coefficients(epsilon=0.2, beta=1.0, ratio="per_action")
        return poca_loss(output, values, batch, coefficients).total

    return kept_bytes(network, columns, loss)


def _sequence(network: GroupActorCritic, rows: int) -> Sequences | None:
    """Returns one sequence of ``rows`` rows; None for a network without memory."""
    if not network.memory_size:
        return None
    places = torch.ones(rows, dtype=torch.int64)  # on the CPU, where LSTMs read them
    memory = torch.zeros(1, network.memory_size, device="meta")
    return Sequences(places, memory, torch.cat((memory, memory), dim=1))
