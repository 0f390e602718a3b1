"""How large the ring and its blocks are, and the refusal of a ring that is too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learner.device.columns import RingColumn
from learner.exits import ExitCode, UserError

_BLOCK_BYTES = 8 * 2**20
_MAX_BLOCK_ROWS = 4096
_DEFAULT_AGENTS = 16
"""Agents a ring of default size has room for beside the buffers; with more, chunks wait on the host a little longer."""


@dataclass(frozen=True, slots=True)
class RingSize:
    """Sizes in rows, final rows included.

    Attributes:
        capacity_rows: of the ring.
        block_rows: of the largest block that is staged at once.
    """

    capacity_rows: int
    block_rows: int


def ring_size(
    columns: Sequence[RingColumn], *, ring_steps: int | None, buffer_size: int, time_horizon: int, chunk_steps: int
) -> RingSize:
    """Chooses the size of the ring.

    Args:
        columns: what a row holds.
        ring_steps: ``rollcast.device_ring_steps``; None takes two update buffers and what 16 agents have open.
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
    row_bytes = max(1, sum(column.row_bytes for column in columns))
    block_rows = max(time_horizon + 1, min(_MAX_BLOCK_ROWS, _BLOCK_BYTES // row_bytes))
    # Segments of one step take two rows each. An update of nothing else must fit, or a full ring could wait for ever.
    worst_update = 2 * (buffer_size + time_horizon + 1)
    # Blocks do not wrap: up to one block is skipped at the end, and one must fit behind what is held.
    return RingSize(max(steps + steps // 8, worst_update) + 2 * block_rows, block_rows)
