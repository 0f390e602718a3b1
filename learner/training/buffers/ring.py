"""The ring: one preallocated storage for each column on the training device, and its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.shared.exits import ExitCode, UserError
from learner.training.buffers.columns import RingColumn
from learner.training.buffers.transfer import to_device

BLOCK_BYTES: Final = 8 * 2**20
MAX_BLOCK_ROWS: Final = 4096
"""Most rows staged at once."""

_DEFAULT_AGENTS = 16
"""Agents for which a ring has room in addition to the buffers before it grows."""


@dataclass(frozen=True, slots=True)
class RingSize:
    """Sizes in rows, including final rows.

    Attributes:
        capacity_rows: Rows of the ring.
        block_rows: Rows of the largest block that is staged at once.
        grows: Whether more rows are allocated when needed; see `ring_size`.
    """

    capacity_rows: int
    block_rows: int
    grows: bool = False


def ring_size(
    row_bytes: int, *, ring_steps: int | None, buffer_size: int, time_horizon: int, chunk_steps: int
) -> RingSize:
    """Chooses the size of the ring.

    The number of steps waiting for an update depends on the agents that will join. Unsettled steps stay within the
    trainer's limit and ``agents * (time_horizon + 1)`` steps over all actors (see `learner.service.ingest.credit`). A ring
    never has to hold more than these and a final row for each segment; a ring whose size was left to the trainer grows
    by halves until it holds them. With a ring of fixed size, the other steps wait on the host for the next update, and
    may become too old for it.

    Args:
        row_bytes: Bytes of a row.
        ring_steps: ``rollcast.device_ring_steps``, a fixed size; None starts with two update buffers and the open
            segments of 16 agents, and grows.
        buffer_size: Steps that an update must exceed.
        time_horizon: The longest segment, in steps.
        chunk_steps: Steps of a full chunk.

    Raises:
        UserError: The ring cannot hold two update buffers, one agent's open segment and a chunk.
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
    # Segments of one step take two rows each. An update of only these must fit, or a full ring could wait forever.
    worst_update = 2 * (buffer_size + time_horizon + 1)
    # Blocks do not wrap: up to one block is skipped at the end, and one must fit after the held rows.
    return RingSize(max(steps + steps // 8, worst_update) + 2 * block_rows, block_rows, grows=ring_steps is None)


class DeviceRing:
    """A ring of rows, reserved at the head in blocks that do not wrap, and freed at the tail.

    Rows have *absolute* numbers that only grow; row a is at place a modulo the capacity. Only `grow` allocates storage
    again.

    Args:
        columns: Columns of a row.
        capacity_rows: Number of rows.
        device: Device of the ring.

    Attributes:
        columns: Columns of a row.
        storage: Tensors by column name, ``[capacity_rows, *shape]``.
        capacity_rows: Number of rows.
    """

    def __init__(self, columns: Sequence[RingColumn], capacity_rows: int, device: torch.device) -> None:
        self.columns = tuple(columns)
        self.capacity_rows = capacity_rows
        self.storage: dict[str, Tensor] = {
            column.name: torch.zeros((capacity_rows, *column.shape), dtype=column.dtype, device=device)
            for column in columns
        }
        self._head = 0
        self._tail = 0

    @property
    def used_rows(self) -> int:
        """Rows between tail and head."""
        return self._head - self._tail

    def reserve(self, rows: int) -> int | None:
        """Reserves a block of contiguous rows.

        Returns:
            Absolute number of the first row, or None if there is no room now.
        """
        place = self._head % self.capacity_rows
        skipped = self.capacity_rows - place if place + rows > self.capacity_rows else 0
        if self.used_rows == 0 and rows <= self.capacity_rows:
            self._tail = self._head + skipped
        elif self.used_rows + skipped + rows > self.capacity_rows:
            return None
        first = self._head + skipped
        self._head = first + rows
        return first

    def grow(self, capacity_rows: int) -> None:
        """.torch.OutOfMemoryError The device has no room for old and new storage at once; nothing has changed.

        Args:
            capacity_rows: New number of rows, larger than before.

        Raises:
            torch.OutOfMemoryError: The device has no room for old and new storage at once; nothing has changed.
        """
        rows = np.arange(self._tail, self._head)
        larger = {}
        for name, old in self.storage.items():
            new = torch.zeros((capacity_rows, *old.shape[1:]), dtype=old.dtype, device=old.device)
            source = to_device(rows % self.capacity_rows, old.device)
            target = to_device(rows % capacity_rows, old.device)
            larger[name] = new.index_copy_(0, target, old.index_select(0, source))
        self.storage, self.capacity_rows = larger, capacity_rows

    def free_before(self, row: int | None) -> None:
        """Frees all rows before an absolute row; None frees every row."""
        self._tail = self._head if row is None else row

    def restart(self, used_rows: int) -> None:
        """Restarts with absolute row 0 in place 0; the first ``used_rows`` count as used."""
        self._tail, self._head = 0, used_rows

    def release(self) -> None:
        """Frees the storage on the device; nothing can be reserved after that."""
        self.storage = {name: values.new_zeros((0, *values.shape[1:])) for name, values in self.storage.items()}
        self._tail = self._head = self.capacity_rows = 0

    def place(self, row: int) -> int:
        """Returns the place of an absolute row."""
        return row % self.capacity_rows

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the places of absolute rows."""
        return rows % self.capacity_rows

    def compact(self, kept: NDArray[np.int64]) -> int:
        """Moves rows together at the tail, so that dropped rows between them take no room.

        Args:
            kept: Absolute rows to keep, ascending; all other rows are freed.

        Returns:
            New absolute number of the first row; the others follow consecutively.
        """
        first = self._tail
        self._head = first + len(kept)
        for tensor in self.storage.values():
            source = to_device(self.places(kept), tensor.device)
            target = to_device(self.places(np.arange(first, self._head)), tensor.device)
            tensor.index_copy_(0, target, tensor.index_select(0, source))
        return first
