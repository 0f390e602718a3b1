"""How large the ring and its blocks are, and the refusal of a ring that is too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learner.device.columns import RingColumn
from learner.exits import ExitCode, UserError

_BLOCK_BYTES = 8 * 2**20
_MAX_BLOCK_ROWS = 4096
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


def ring_size(
    columns: Sequence[RingColumn], *, ring_steps: int | None, buffer_size: int, time_horizon: int, chunk_steps: int
) -> RingSize:
    """Chooses the size of the ring.

    How much may wait for an update depends on the agents that will join. What is unsettled stays within the trainer's
    limit and ``agents * (time_horizon + 1)`` steps over all actors (see `learner.ingest.credit`), so that is the most a
    ring ever holds, one final row for each segment included; one whose size was left to the trainer grows up to that.
    In a ring of fixed size the rest waits on the host for the next update, and may become too old for it.

    Args:
        columns: what a row holds.
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
    row_bytes = max(1, sum(column.row_bytes for column in columns))
    block_rows = max(time_horizon + 1, min(_MAX_BLOCK_ROWS, _BLOCK_BYTES // row_bytes))
    # Segments of one step take two rows each. An update of nothing else must fit, or a full ring could wait for ever.
    worst_update = 2 * (buffer_size + time_horizon + 1)
    # Blocks do not wrap: up to one block is skipped at the end, and one must fit behind what is held.
    return RingSize(max(steps + steps // 8, worst_update) + 2 * block_rows, block_rows, grows=ring_steps is None)
