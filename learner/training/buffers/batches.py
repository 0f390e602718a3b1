"""Stop 8 of a step's path: shuffled minibatches of fixed shape, gathered by index on the device of the columns.

The permutation is created on the device and nothing is read back. Gathering many minibatches in one call and yielding
views of the result is cheaper than gathering each separately; a limit in bytes bounds how many are gathered at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

_BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class RowSource:
    """A column to draw from.

    Attributes:
        values: ``[rows, *shape]``.
        places: ``[N]`` int64, row of each step in ``values``; None if step n is row n. ``[N, m]`` for m rows of each
            step, which are drawn as ``[B, m, *shape]``.
    """

    values: Tensor
    places: Tensor | None = None

    @property
    def each(self) -> int:
        """Number of rows of a step."""
        return 1 if self.places is None or self.places.dim() == 1 else self.places.shape[1]

    def at(self, steps: Tensor) -> Tensor:
        """Gathers the rows of chosen steps ``[B]`` int64."""
        rows = self.rows(steps)
        found = self.values.index_select(0, rows.flatten())
        return found if rows.dim() == 1 else found.unflatten(0, rows.shape)

    def rows(self, steps: Tensor) -> Tensor:
        """Returns the rows of chosen steps ``[B]`` int64 in ``values``, ``[B]`` or ``[B, m]``."""
        return steps if self.places is None else self.places.index_select(0, steps)


class Share(NamedTuple):
    """A learner's share of the steps, or sequences, of an update.

    Attributes:
        own: Number of those of this learner; 0 if others stand in their place.
        total: Number of those of all learners.
    """

    own: int
    total: int


def parts_of(share: Share, size: int, rank: int) -> list[int]:
    """Returns how much of its share a learner adds to each minibatch of an epoch of all learners.

    There are as many minibatches as one learner would make of everything, ``total // size`` or one, and of about the
    same size. What a learner lacks in one minibatch another one adds.

    Args:
        share: The learner's share.
        size: Size of a minibatch of all learners.
        rank: Number of the learner.
    """
    own, total = share
    count = max(1, total // size)
    used = own * min(total, count * size) // total
    shift = rank % count
    ends = [(used * index + shift) // count for index in range(count + 1)]
    return [end - begin for begin, end in pairwise(ends)]


def chosen_of(order: Tensor, sizes: Sequence[int]) -> Iterator[Tensor]:
    """Yields the next ``size`` indices of a permutation for each size; for size 0 the last one."""
    begin = 0
    for size in sizes:
        yield order[begin : begin + size] if size else order[-1:]
        begin += size


class Minibatches:
    """Draws minibatches; its buffers are allocated on first use and then kept.

    Args:
        batch_size: Steps in a minibatch.
        generator: Generator of the permutations, on the device of the columns.
        block_bytes: Bytes gathered at once, over all columns.
    """

    def __init__(self, batch_size: int, generator: torch.Generator, block_bytes: int = _BLOCK_BYTES) -> None:
        self.batch_size = batch_size
        self.order = torch.empty(0, dtype=torch.int64)
        self._generator = generator
        self._block_bytes = block_bytes
        self._buffers: dict[str, Tensor] = {}

    def epoch(
        self, sources: Mapping[str, RowSource], steps: int, sizes: Sequence[int] | None = None
    ) -> Iterator[dict[str, Tensor]]:
        """Yields ``steps // batch_size`` minibatches (at least one) that share no step; the remainder is left out.

        A minibatch is valid until the next one is requested. With fewer steps than ``batch_size`` there is one smaller
        minibatch. Once the first minibatch exists, `order` holds the permutation.

        Args:
            sources: The columns, each with at least ``steps`` steps.
            steps: Number of steps, N.
            sizes: Steps of each minibatch of one of several learners, N in total at most; None for a single learner.
                Size 0 yields one step in the place of those that the learner lacks.
        """
        if sizes is not None:
            device = next(iter(sources.values())).values.device
            self.order = torch.randperm(steps, generator=self._generator, device=device)
            for chosen in chosen_of(self.order, sizes):
                yield {name: source.at(chosen) for name, source in sources.items()}
            return
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

    def _gather(self, name: str, source: RowSource, chosen: Tensor) -> Tensor:
        rows = source.rows(chosen)
        found = torch.index_select(source.values, 0, rows.flatten(), out=self._buffers[name][: rows.numel()])
        return found if rows.dim() == 1 else found.unflatten(0, rows.shape)

    def _reserve(self, sources: Mapping[str, RowSource], rows: int) -> None:
        for name, source in sources.items():
            kept = self._buffers.get(name)
            shape = (rows * source.each, *source.values.shape[1:])
            if kept is None or kept.shape[0] < shape[0] or kept.shape[1:] != shape[1:]:
                self._buffers[name] = torch.empty(shape, dtype=source.values.dtype, device=source.values.device)


def _row_bytes(sources: Mapping[str, RowSource]) -> int:
    return sum(source.values[0].nbytes * source.each for source in sources.values())
