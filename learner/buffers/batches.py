"""Stop 8 of a step's way: shuffled minibatches of fixed shape, gathered by index from where the columns are.

The permutation is made on the device and nothing is read back. Gathering many minibatches in one call and handing out
views of the result is cheaper than gathering each alone; how many are gathered at once is bounded in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Source:
    """A column to draw from.

    Attributes:
        values: ``[rows, *shape]``.
        places: ``[N]`` int64, where each step's row is in ``values``; None if step n is row n.
    """

    values: Tensor
    places: Tensor | None = None

    def at(self, steps: Tensor) -> Tensor:
        """Gathers the rows of chosen steps ``[B]`` int64."""
        rows = steps if self.places is None else self.places.index_select(0, steps)
        return self.values.index_select(0, rows)


class Minibatches:
    """Draws minibatches; its buffers are allocated at the first use and then kept.

    Args:
        batch_size: steps in a minibatch.
        generator: of the permutations, on the device of the columns.
        block_bytes: how much is gathered at once, over all columns.
    """

    def __init__(self, batch_size: int, generator: torch.Generator, block_bytes: int = _BLOCK_BYTES) -> None:
        self.batch_size = batch_size
        self.order = torch.empty(0, dtype=torch.int64)
        self._generator = generator
        self._block_bytes = block_bytes
        self._buffers: dict[str, Tensor] = {}

    def epoch(self, sources: Mapping[str, Source], steps: int) -> Iterator[dict[str, Tensor]]:
        """Yields ``steps // batch_size`` minibatches (at least one) that share no step; the remainder is left out.

        A minibatch is valid until the next one is asked for. With fewer steps than ``batch_size`` there is one smaller
        minibatch. After the first one is there, `order` holds the permutation.

        Args:
            sources: the columns, each with at least ``steps`` steps.
            steps: N.
        """
        size = min(self.batch_size, steps)
        device = next(iter(sources.values())).values.device
        count = steps // size
        self.order = torch.randperm(steps, generator=self._generator, device=device)[: count * size]
        per_block = max(1, min(count, self._block_bytes // max(1, size * _row_bytes(sources))))
        self._reserve(sources, per_block * size)
        for begin in range(0, count * size, per_block * size):
            chosen = self.order[begin : begin + per_block * size]
            gathered = {name: torch.split(self._gather(name, source, chosen), size) for name, source in sources.items()}
            for batch in zip(*gathered.values(), strict=True):
                yield dict(zip(gathered, batch, strict=True))

    def _gather(self, name: str, source: Source, chosen: Tensor) -> Tensor:
        rows = chosen if source.places is None else source.places.index_select(0, chosen)
        return torch.index_select(source.values, 0, rows, out=self._buffers[name][: chosen.shape[0]])

    def _reserve(self, sources: Mapping[str, Source], rows: int) -> None:
        for name, source in sources.items():
            kept = self._buffers.get(name)
            shape = (rows, *source.values.shape[1:])
            if kept is None or kept.shape[0] < rows or kept.shape[1:] != shape[1:]:
                self._buffers[name] = torch.empty(shape, dtype=source.values.dtype, device=source.values.device)


def _row_bytes(sources: Mapping[str, Source]) -> int:
    return sum(source.values[0].nbytes for source in sources.values())
