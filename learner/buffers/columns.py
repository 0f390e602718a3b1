"""The columns of the ring: what of a chunk an on-policy update needs, and in which type.

A segment of n steps takes n + 1 rows. The last one, its *final row*, holds what was observed after the last step, so
that the value of the next observation is the value of the next row, wherever a row stands. In all other columns a final
row holds zeros.
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
"""torch cannot index, or not store, some types of the wire; the network casts to float32 anyway."""


@dataclass(frozen=True, slots=True)
class RingColumn:
    """One column of the ring.

    Attributes:
        name: its name; that of the chunk's column where one corresponds to it.
        dtype: element type in the ring.
        shape: of one row.
        final: the chunk's column that fills the final rows, if any.
        stride: the chunk has a value for every so many rows of a segment; the other rows hold zeros.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...] = ()
    final: str | None = None
    stride: int = 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


def observation_column(name: str) -> str:
    """Returns the column of an observation."""
    return f"obs/{name}"


def step_columns(spec: BehaviorSpec, choices: torch.dtype) -> list[RingColumn]:
    """Returns the columns of what was seen and done, which every ring has.

    Args:
        spec: what the behavior sees and does.
        choices: type of discrete actions.
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


def on_policy_columns(spec: BehaviorSpec, *, memory_size: int = 0, memory_stride: int = 0) -> tuple[RingColumn, ...]:
    """Returns the columns of an on-policy trainer.

    ``reward`` is the agent's own reward plus its group's; ``version`` the policy version that acted; ``memory`` is what
    the policy remembered before a row, at the first row of each sequence. A column of all rows, most of them zeros, is
    larger than a list of sequences would be, and moves with its rows wherever they go.

    Args:
        spec: what the behavior sees and does.
        memory_size: numbers of memory an agent; 0 = none.
        memory_stride: rows between two records of memory.
    """
    columns = step_columns(spec, torch.int64)  # so that the loss can gather with choices as they are
    columns.append(RingColumn(LOG_PROB, torch.float32, (spec.action.factors,)))
    columns.append(RingColumn(REWARD, torch.float32))
    columns.append(RingColumn(VERSION, torch.int64))
    if memory_size:
        columns.append(RingColumn(MEMORY, torch.float32, (memory_size,), stride=memory_stride))
    return tuple(columns)


def stored_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """Returns the type in which values of a wire type are kept in the ring."""
    found = getattr(torch, _STORED_AS.get(dtype.name, dtype.name))
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no type for {dtype.name}")
    return found
