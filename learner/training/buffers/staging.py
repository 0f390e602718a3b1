"""Staging: copies rows from host arrays into the ring without making the trainer wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.training.buffers.ring import DeviceRing

Block = Mapping[str, NDArray[Any]]
"""Arrays to fill, by column name: ``[rows, *shape]`` each."""


class Staging(Protocol):
    """Copies blocks of rows to a ring: `open` one, fill it, `commit` it; `join` before the ring is read."""

    def open(self, first_row: int, rows: int) -> Block:
        """Returns the arrays to fill for a block that `DeviceRing.reserve` granted."""

    def commit(self) -> None:
        """Starts the copy of the open block."""

    def join(self) -> None:
        """Makes all work queued on the device from now on see every committed block."""


class DirectStaging:
    """Fills the ring directly, without a buffer in between; for CPUs.

    Args:
        ring: Receives the rows.
    """

    def __init__(self, ring: DeviceRing) -> None:
        self._ring = ring

    def open(self, first_row: int, rows: int) -> Block:
        """Returns views of the ring."""
        place = self._ring.place(first_row)
        return {name: tensor[place : place + rows].numpy() for name, tensor in self._ring.storage.items()}

    def commit(self) -> None:
        """Does nothing."""

    def join(self) -> None:
        """Does nothing."""


class PinnedStaging:
    """Copies blocks from two alternating pinned host buffers on a separate stream.

    Args:
        ring: Receives the rows.
        block_rows: Rows of the largest block.
        device: A CUDA device.
    """

    def __init__(self, ring: DeviceRing, block_rows: int, device: torch.device) -> None:
        self._ring = ring
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._slots = [_Slot(ring, block_rows), _Slot(ring, block_rows)]
        self._place = 0
        self._rows = 0

    def open(self, first_row: int, rows: int) -> Block:
        """Returns views of a pinned buffer; waits only if its last copy is not complete."""
        slot = self._slots[0]
        slot.copied.synchronize()
        self._place, self._rows = self._ring.place(first_row), rows
        return {name: view[:rows] for name, view in slot.views.items()}

    def commit(self) -> None:
        """Queues the copy after all work that may still read the ring."""
        slot = self._slots[0]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for name, pinned in slot.buffers.items():
                target = self._ring.storage[name][self._place : self._place + self._rows]
                target.copy_(pinned[: self._rows], non_blocking=True)
            slot.copied.record(self._stream)
        self._slots.reverse()

    def join(self) -> None:
        """Makes the current stream wait for the copies; the host does not wait."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


class _Slot:
    """One pinned host buffer for each column, and the event that marks its copy as complete."""

    def __init__(self, ring: DeviceRing, block_rows: int) -> None:
        self.buffers: dict[str, Tensor] = {
            column.name: torch.zeros((block_rows, *column.shape), dtype=column.dtype, pin_memory=True)
            for column in ring.columns
        }
        self.views = {name: buffer.numpy() for name, buffer in self.buffers.items()}
        self.copied = torch.cuda.Event()


def staging_for(ring: DeviceRing, block_rows: int, device: torch.device) -> Staging:
    """Returns the staging for the device."""
    if device.type == "cuda":
        return PinnedStaging(ring, block_rows, device)
    return DirectStaging(ring)
