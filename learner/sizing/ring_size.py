"""How large the ring of a behavior is: plain arithmetic, for the ring itself and for the check of a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from rollcast.specs import BehaviorSpec

from learner.common.exits import ExitCode, UserError

STORED_AS: Final[Mapping[str, str]] = MappingProxyType(
    {"bool": "uint8", "uint16": "int32", "uint32": "int64", "float64": "float32", "float16": "float32"}
)
"""torch cannot index, or not store, some types of the wire; the network casts to float32 anyway."""

BLOCK_BYTES: Final = 8 * 2**20
MAX_BLOCK_ROWS: Final = 4096
"""The most that is staged at once."""

_DEFAULT_AGENTS = 16
"""Agents a ring has room for beside the buffers before it grows."""


@dataclass(frozen=True, slots=True)
class RingSize:
    """Sizes in rows, final rows included.

    Attributes:
        capacity_rows: of the ring.
        block_rows: of the largest block that is staged at once.
        grows: more rows are allocated when they are needed; see `ring_size`.
    """

    capacity_rows: int
    block_rows: int
    grows: bool = False


def stored_type(dtype: np.dtype[Any]) -> str:
    """Returns the name of the type in which values of a wire type are kept in the ring."""
    return STORED_AS.get(dtype.name, dtype.name)


def on_policy_row_bytes(spec: BehaviorSpec, memory_size: int = 0) -> int:
    """Returns the bytes of one row of an on-policy ring (the columns of `learner.buffers.columns.on_policy_columns`)."""
    observed = sum(
        observation.size * np.dtype(stored_type(observation.dtype)).itemsize for observation in spec.observations
    )
    action = spec.action
    acted = 4 * action.continuous_size + 8 * len(action.discrete_branches) + action.mask_size
    return observed + acted + 4 * action.factors + 4 + 8 + 4 * memory_size  # log-probabilities, reward, ...


def ring_size(
    row_bytes: int, *, ring_steps: int | None, buffer_size: int, time_horizon: int, chunk_steps: int
) -> RingSize:
    """Chooses the size of the ring.

    How much may wait for an update depends on the agents that will join. What is unsettled stays within the trainer's
    limit and ``agents * (time_horizon + 1)`` steps over all actors (see `learner.ingest.credit`). These, and a final row
    for each segment, are all that a ring ever has to hold; one whose size was left to the trainer grows by halves until
    it does. In a ring of fixed size the rest waits on the host for the next update, and may become too old for it.

    Args:
        row_bytes: what a row takes.
        ring_steps: ``rollcast.device_ring_steps``, a fixed size; None begins with two update buffers and what 16 agents
            have open, and grows.
        buffer_size: steps that an update must exceed.
        time_horizon: the longest segment, in steps.
        chunk_steps: steps of a full chunk.

    Raises:
        UserError: the ring cannot hold two update buffers, one agent's open segment and a chunk.
    """
    need = 2 * buffer_size + time_horizon + chunk_steps
    if ring_steps is not None and ring_steps < need:
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.device_ring_steps is {ring_steps}; it must be at least {need} (2 * buffer_size {buffer_size} + "
            f"time_horizon {time_horizon} + a chunk of {chunk_steps}): raise it, or lower buffer_size or time_horizon",
        )
    steps = ring_steps or 2 * buffer_size + _DEFAULT_AGENTS * time_horizon + chunk_steps
    block_rows = max(time_horizon + 1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes)))
    # Segments of one step take two rows each. An update of nothing else must fit, or a full ring could wait for ever.
    worst_update = 2 * (buffer_size + time_horizon + 1)
    # Blocks do not wrap: up to one block is skipped at the end, and one must fit behind what is held.
    return RingSize(max(steps + steps // 8, worst_update) + 2 * block_rows, block_rows, grows=ring_steps is None)
