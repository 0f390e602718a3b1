"""Staging: how rows get from host arrays into the ring without the trainer's waiting for a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.buffers.ring import DeviceRing

Block = Mapping[str, NDArray[Any]]
"""Arrays to fill, by column name: ``[rows, *shape]`` each."""


class Staging(Protocol):
    """Takes blocks of rows to a ring: `open` one, fill it, `commit` it; `join` before the ring is read."""

    def open(self, first_row: int, rows: int) -> Block:
        """Returns the arrays to fill for a block that `DeviceRing.reserve` granted."""

    def commit(self) -> None:
        """Sends off the open block."""

    def join(self) -> None:
        """Makes all work that is queued on the device from now on see every committed block."""


class DirectStaging:
    """On a CPU the ring itself is filled.

    Args:
        ring: where rows go.
    """

    def __init__(self, ring: DeviceRing) -> None:
        self._ring = ring

    def open(self, first_row: int, rows: int) -> Block:
        """Returns views of the ring."""
        place = self._ring.place(first_row)
        return {name: tensor[place : place + rows].numpy() for name, tensor in self._ring.storage.items()}

    def commit(self) -> None:
        """Has nothing to do."""

    def join(self) -> None:
        """Has nothing to do."""


class PinnedStaging:
    """Two pinned host buffers that take turns, copied on a stream of their own.

    Args:
        ring: where rows go.
        block_rows: the largest block.
        device: a CUDA device.
    """

    def __init__(self, ring: DeviceRing, block_rows: int, device: torch.device) -> None:
        self._ring = ring
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._slots = [_Slot(ring, block_rows), _Slot(ring, block_rows)]
        self._place = 0
        self._rows = 0

    def open(self, first_row: int, rows: int) -> Block:
        """Returns views of a pinned buffer; waits only if its last copy is still under way."""
        slot = self._slots[0]
        slot.copied.synchronize()
        self._place, self._rows = self._ring.place(first_row), rows
        return {name: view[:rows] for name, view in slot.views.items()}

    def commit(self) -> None:
        """Queues the copy behind everything that may still read the ring."""
        slot = self._slots[0]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for name, pinned in slot.buffers.items():
                target = self._ring.storage[name][self._place : self._place + self._rows]
                target.copy_(pinned[: self._rows], non_blocking=True)
            slot.copied.record(self._stream)
        self._slots.reverse()

    def join(self) -> None:
        """Lets the present stream wait for the copies; the host does not wait."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


class _Slot:
    """One pinned host buffer for each column, and the event that says that its copy is done."""

    def __init__(self, ring: DeviceRing, block_rows: int) -> None:
        self.buffers: dict[str, Tensor] = {
            column.name: torch.zeros((block_rows, *column.shape), dtype=column.dtype, pin_memory=True)
            for column in ring.columns
        }
        self.views = {name: buffer.numpy() for name, buffer in self.buffers.items()}
        self.copied = torch.cuda.Event()


def staging_for(ring: DeviceRing, block_rows: int, device: torch.device) -> Staging:
    """Returns the staging that suits the device."""
    if device.type == "cuda":
        return PinnedStaging(ring, block_rows, device)
    return DirectStaging(ring)
