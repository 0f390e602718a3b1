"""How large the ring of these columns and its blocks are; the arithmetic is `learner.sizing.ring_size`'s."""

from __future__ import annotations

from collections.abc import Sequence

from learner.buffers.columns import RingColumn
from learner.sizing import ring_size as sizes
from learner.sizing.ring_size import RingSize

__all__ = ["RingSize", "ring_size"]


def ring_size(
    columns: Sequence[RingColumn], *, ring_steps: int | None, buffer_size: int, time_horizon: int, chunk_steps: int
) -> RingSize:
    """Chooses the size of the ring; see `learner.sizing.ring_size.ring_size`.

    Args:
        columns: what a row holds.
        ring_steps: ``rollcast.device_ring_steps``.
        buffer_size: steps that an update must exceed.
        time_horizon: the longest segment, in steps.
        chunk_steps: steps of a full chunk.

    Raises:
        UserError: the ring cannot hold two update buffers, one agent's open segment and a chunk.
    """
    return sizes.ring_size(
        sum(column.row_bytes for column in columns),
        ring_steps=ring_steps,
        buffer_size=buffer_size,
        time_horizon=time_horizon,
        chunk_steps=chunk_steps,
    )
