"""Counts what a loss keeps for its backward pass, on the meta device: nothing is computed or allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

Columns = Mapping[str, Tensor]

_FEW_ROWS: Final = (2, 4)
"""Each further row keeps the same, so that these two tell about any number of rows, and no size overflows."""
_GRADIENTS: Final = 2
"""Tensors of the size of the largest one kept that a backward pass has at once: a gradient, and the one before it."""
_ALIVE: Final = 3
"""Such tensors that a forward pass without gradients has at once, its result included."""


class KeptBytes(NamedTuple):
    """Bytes that a minibatch, a forward pass and its backward pass take at once, beside parameters and their gradients.

    Attributes:
        constant: whatever the number of rows.
        per_row: for each row.
        per_forward_row: for each row of a forward pass alone.
    """

    constant: int
    per_row: int
    per_forward_row: int

    def of(self, rows: int) -> int:
        """Returns those of a number of rows."""
        return self.constant + self.per_row * rows


def kept_bytes(
    network: nn.Module, columns: Callable[[int], Columns], compute: Callable[[Columns], object]
) -> KeptBytes:
    """Counts what autograd saves while a loss is computed, each storage once, by hooks on saved tensors.

    Args:
        network: on the meta device; its parameters and buffers are not counted.
        columns: makes a minibatch of so many rows, on torch's default device.
        compute: computes its loss.
    """
    few, more = _FEW_ROWS
    with torch.device("meta"):  # not around what is computed: each operation would take twice as long
        less, minibatch = columns(few), columns(more)
    one, other = _sizes(network, less, compute), _sizes(network, minibatch, compute)
    largest = (max(other) - max(one)) // (more - few)
    per_row = (sum(other) - sum(one)) // (more - few) + _GRADIENTS * largest
    constant = sum(one) + _GRADIENTS * max(one) - few * per_row
    return KeptBytes(max(0, constant), per_row, _ALIVE * largest)


def _sizes(network: nn.Module, columns: Columns, compute: Callable[[Columns], object]) -> list[int]:
    """Returns the bytes of each storage of the columns, and of each that autograd saves."""
    saved: list[Tensor] = []

    def save(value: Tensor) -> int:
        saved.append(value)
        return len(saved) - 1  # not the tensor: a result that its own way back holds would never be freed

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(save, saved.__getitem__):
        compute(columns)
    kept = {value.untyped_storage() for value in (*columns.values(), *saved) if value.is_meta}
    kept -= {value.untyped_storage() for value in (*network.parameters(), *network.buffers())}
    saved.clear()
    return [storage.nbytes() for storage in kept]
