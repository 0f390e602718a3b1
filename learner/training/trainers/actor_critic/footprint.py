"""Counts the bytes that an actor-critic minibatch keeps for its backward pass, on the meta device."""

from __future__ import annotations

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.training.buffers.columns import (
    ACTION_MASK,
    CONTINUOUS_ACTION,
    DISCRETE_ACTION,
    LOG_PROB,
    observation_column,
    on_policy_columns,
)
from learner.training.networks.kept import Columns, KeptBytes, kept_bytes
from learner.training.networks.value import ActorCritic, Sequences
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, actor_critic_loss, log_probability


def minibatch_bytes(network: ActorCritic, spec: BehaviorSpec) -> KeptBytes:
    """Counts the bytes of a minibatch, with a loss that uses every output of an actor-critic.

    Args:
        network: Network on the meta device.
        spec: Observations and actions of the behavior.
    """
    observations = [observation_column(observation.name) for observation in spec.observations]

    def columns(rows: int) -> dict[str, Tensor]:
        return {
            column.name: torch.zeros((rows, *column.shape), dtype=column.dtype) for column in on_policy_columns(spec)
        }

    def loss(columns: Columns) -> Tensor:
        recorded = columns[LOG_PROB]
        output, values = network(
            [columns[name] for name in observations], columns.get(ACTION_MASK), _sequence(network, recorded.shape[0])
        )
        advantage, returns = recorded.new_zeros(recorded.shape[0], 1), torch.zeros_like(values)
        batch = Batch(columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION), recorded, advantage, returns)
        ratios = (log_probability(output, batch.continuous, batch.discrete, "per_action") - recorded).exp()
        coefficients = Coefficients(epsilon=0.0, beta=1.0, ratio="per_action")
        return actor_critic_loss((ratios * advantage).mean(), output, values, batch, coefficients).total

    return kept_bytes(network, columns, loss)


def _sequence(network: ActorCritic, rows: int) -> Sequences | None:
    """Returns one sequence of ``rows`` rows; None for a network without memory."""
    if not network.memory_size:
        return None
    places = torch.ones(rows, dtype=torch.int64)  # on the CPU, where LSTMs read them
    memory = torch.zeros(1, network.memory_size, device="meta")
    return Sequences(places, memory, None if network.critic_body is network.policy.body else memory)
