"""How large a replay memory is: plain arithmetic, for the memory itself and for the check of a declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from rollcast.specs import BehaviorSpec

from learner.sizing.ring_size import BLOCK_BYTES, MAX_BLOCK_ROWS, stored_type

_SHORT_SEGMENT_STEPS: Final = 4
"""Mean length of the segments for which there is room; with shorter ones a memory holds fewer steps."""

_TABLE_BYTES: Final = 9
"""Of each row: where its step is, and whether it was drawn."""


@dataclass(frozen=True, slots=True)
class ReplaySize:
    """Sizes of a replay memory.

    Attributes:
        capacity_steps: the most steps.
        capacity_rows: rows, those for what was seen after segments included.
        block_rows: of the largest block that is staged at once.
    """

    capacity_steps: int
    capacity_rows: int
    block_rows: int


def replay_row_bytes(spec: BehaviorSpec, memory_size: int = 0) -> int:
    """Returns the bytes of one row (the columns of `learner.buffers.replay.replay_columns`), its tables included.

    Args:
        spec: what the behavior sees and does.
        memory_size: numbers of memory an agent; 0 = none.
    """
    observed = sum(
        observation.size * np.dtype(stored_type(observation.dtype)).itemsize for observation in spec.observations
    )
    action = spec.action
    acted = 4 * action.continuous_size + 4 * len(action.discrete_branches) + action.mask_size
    return observed + acted + 4 + 1 + 4 * memory_size + _TABLE_BYTES  # reward, terminated, ...


def replay_size(row_bytes: int, *, buffer_size: int, time_horizon: int) -> ReplaySize:
    """Chooses the size of a replay memory.

    Args:
        row_bytes: what a row takes.
        buffer_size: the most steps.
        time_horizon: the longest segment, in steps.
    """
    fitting = min(MAX_BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes), buffer_size)
    block_rows = max(time_horizon + 1, fitting)
    finals = -(-buffer_size // min(time_horizon, _SHORT_SEGMENT_STEPS))
    # Blocks do not wrap: up to one block is skipped at the end, and one must fit behind what is held.
    return ReplaySize(buffer_size, buffer_size + finals + 2 * block_rows, block_rows)
