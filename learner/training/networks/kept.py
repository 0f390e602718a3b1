"""Counts what a loss keeps for its backward pass on the meta device, where nothing is computed or allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Columns = Mapping[str, Tensor]

_FEW_ROWS: Final = (2, 4)
"""Each further row keeps the same number of bytes, so two sizes give the count for any number of rows without overflow.
"""
_GRADIENTS: Final = 2
"""Tensors of the largest size that a backward pass holds at once: a gradient and the previous one."""
_ALIVE: Final = 3
"""Tensors of the largest size that a forward pass without gradients holds at once, including its result."""


class KeptBytes(NamedTuple):
    """Bytes that a minibatch with its forward and backward pass takes, in addition to parameters and their gradients.

    Attributes:
        constant: Bytes for any number of rows.
        per_row: Bytes for each row.
        per_forward_row: Bytes for each row of a forward pass without gradients.
    """

    constant: int
    per_row: int
    per_forward_row: int

    def of(self, rows: int) -> int:
        """Returns the bytes for a number of rows."""
        return self.constant + self.per_row * rows


def kept_bytes(
    network: nn.Module, columns: Callable[[int], Columns], compute: Callable[[Columns], object]
) -> KeptBytes:
    """Counts what autograd saves while a loss is computed, with each storage counted once, by hooks on saved tensors.

    Args:
        network: Network on the meta device; its parameters and buffers are not counted.
        columns: Creates a minibatch of a number of rows, on torch's default device.
        compute: Computes the loss of the minibatch.
    """
    few, more = _FEW_ROWS
    with torch.device("meta"):  # not around the computation: each operation would take twice as long
        less, minibatch = columns(few), columns(more)
    (one, least), (other, most) = _sizes(network, less, compute), _sizes(network, minibatch, compute)
    largest = (most - least) // (more - few)
    per_row = (other - one) // (more - few) + _GRADIENTS * largest
    constant = one + _GRADIENTS * least - few * per_row
    return KeptBytes(max(0, constant), per_row, _ALIVE * largest)


class _Largest(TorchDispatchMode):
    """Records the bytes of the largest result of an operation; an unsaved tensor also has a gradient of its size."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operation."""
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and not func.is_view:
            self.size_bytes = max(self.size_bytes, made.nbytes)
        return made


def _sizes(network: nn.Module, columns: Columns, compute: Callable[[Columns], object]) -> tuple[int, int]:
    """Returns the bytes of the columns and of all that autograd saves, and the bytes of the largest tensor."""
    own = {value.untyped_storage() for value in (*network.parameters(), *network.buffers())}
    kept = {value.untyped_storage() for value in columns.values()}

    def note(value: Tensor) -> Tensor:
        if value.is_meta and value.untyped_storage() not in own:
            kept.add(value.untyped_storage())
        return value.detach()  # the result itself would hold its own graph, which autograd restores

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda value: value)
    with torch.enable_grad(), hooks, _Largest() as largest:
        compute(columns)
    sizes = [storage.nbytes() for storage in kept]
    return sum(sizes), max(*sizes, largest.size_bytes)
