"""The columns of the ring: the parts of a chunk that an on-policy update needs, and their types.

A segment of n steps takes n + 1 rows. The last one, its *final row*, holds the observation after the last step, so that
the value of the next observation is always the value of the next row. In all other columns a final row holds zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from rollcast.specs import BehaviorSpec

ACTION_MASK = "action_mask"
CONTINUOUS_ACTION = "continuous_action"
DISCRETE_ACTION = "discrete_action"
TERMINATED = "terminated"
LOG_PROB = "log_prob"
MEMORY = "memory"
REWARD = "reward"
VERSION = "version"

_STORED_AS: Final[Mapping[str, str]] = MappingProxyType(
    {"bool": "uint8", "uint16": "int32", "uint32": "int64", "float64": "float32", "float16": "float32"}
)
"""torch cannot index or store some wire types; the network casts to float32 anyway."""


@dataclass(frozen=True, slots=True)
class RingColumn:
    """One column of the ring.

    Attributes:
        name: Name of the column, and of the corresponding column of the chunk, if any.
        dtype: Element type in the ring.
        shape: Shape of one row.
        final: Column of the chunk that fills the final rows, if any.
        stride: Rows between two values in the chunk's column; the other rows hold zeros.
        of_team: For rewards, whether the own rewards of group mates are added.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...] = ()
    final: str | None = None
    stride: int = 1
    of_team: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


def observation_column(name: str) -> str:
    """Returns the column of an observation."""
    return f"obs/{name}"


def step_columns(spec: BehaviorSpec, choices: torch.dtype) -> list[RingColumn]:
    """Returns the columns of observations and actions, which every ring has.

    Args:
        spec: Observations and actions of the behavior.
        choices: Type of discrete actions.
    """
    columns = [
        RingColumn(
            observation_column(observation.name),
            stored_dtype(observation.dtype),
            observation.shape,
            final=f"final_obs/{observation.name}",
        )
        for observation in spec.observations
    ]
    action = spec.action
    if action.continuous_size:
        columns.append(RingColumn(CONTINUOUS_ACTION, torch.float32, (action.continuous_size,)))
    if action.discrete_branches:
        columns.append(RingColumn(DISCRETE_ACTION, choices, (len(action.discrete_branches),)))
        columns.append(RingColumn(ACTION_MASK, torch.uint8, (action.mask_size,)))
    return columns


def on_policy_columns(
    spec: BehaviorSpec, *, memory_size: int = 0, memory_stride: int = 0, of_team: bool = False
) -> tuple[RingColumn, ...]:
    """Returns the columns of an on-policy trainer.

    ``reward`` is the agent's own reward plus its group's, and with ``of_team`` plus those of its mates; ``version`` is the policy version that acted; ``memory`` is
    the policy's memory before a row, at the first row of each sequence. This column, most of whose rows are zeros, is
    larger than a list of sequences, but moves together with the ring's rows.

    Args:
        spec: Observations and actions of the behavior.
        memory_size: Memory values per agent; 0 for none.
        memory_stride: Rows between two records of memory.
        of_team: Whether the own rewards of group mates are added to a reward.
    """
    columns = step_columns(spec, torch.int64)  # so that the loss can gather with choices directly
    columns.append(RingColumn(LOG_PROB, torch.float32, (spec.action.factors,)))
    columns.append(RingColumn(REWARD, torch.float32, of_team=of_team))
    columns.append(RingColumn(VERSION, torch.int64))
    if memory_size:
        columns.append(RingColumn(MEMORY, torch.float32, (memory_size,), stride=memory_stride))
    return tuple(columns)


def stored_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """Returns the type in which the ring keeps values of a wire type."""
    found = getattr(torch, _STORED_AS.get(dtype.name, dtype.name))
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no type for {dtype.name}")
    return found
