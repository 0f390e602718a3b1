"""Sequences for recurrent networks: segments cut at a fixed stride, and minibatches of whole sequences.

Lengths are known on the host, so the rows of all minibatches are computed there and sent to the device once per epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.training.buffers.batches import RowSource, chosen_of
from learner.training.buffers.layout import split
from learner.training.buffers.transfer import to_device
from learner.training.networks.lstm import Unrolled
from learner.training.networks.value import Sequences

Index = NDArray[np.int64]


class Cut(NamedTuple):
    """Q sequences cut from segments of N steps, on the host.

    Attributes:
        starts: ``[Q]``, first step of each, 0 <= step < N.
        lengths: ``[Q]``, at least 1.
        segments: ``[Q]``, segment to which each belongs.
    """

    starts: Index
    lengths: Index
    segments: Index


@dataclass(frozen=True, slots=True)
class SequenceTable:
    """Sequences and the networks' memories before each.

    Attributes:
        cut: Location of the sequences.
        policy: ``[Q, memory_size]``, as recorded by actors.
        critic: ``[Q, memory_size]`` of a critic with separate memory; None for a head on the policy's body.
    """

    cut: Cut
    policy: Tensor
    critic: Tensor | None


class Pack(NamedTuple):
    """S chosen sequences in packed order (see `learner.training.networks.lstm`).

    Attributes:
        order: ``[S]``, the chosen sequences, longest first.
        steps: ``[B]``, their steps.
        batch_sizes: ``[L]``, number of sequences with a step at each position.
    """

    order: Index
    steps: Index
    batch_sizes: Index


def cut_segments(lengths: Index, stride: int) -> Cut:
    """Cuts segments from their starts into sequences of ``stride`` steps; the last of each may be shorter.

    Args:
        lengths: ``[S]``, steps of the contiguous segments.
        stride: Steps of the longest sequence.
    """
    counts = -(-lengths // stride)
    segments = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(len(segments)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = (np.cumsum(lengths) - lengths)[segments] + stride * within
    return Cut(starts, np.minimum(stride, lengths[segments] - stride * within), segments)


def pack(cut: Cut, chosen: Index) -> Pack:
    """Packs chosen sequences; requires at least one."""
    order = chosen[np.argsort(-cut.lengths[chosen], kind="stable")]
    lengths = cut.lengths[order]
    places = np.arange(lengths[0])
    batch_sizes = np.searchsorted(-lengths, -places, side="left")  # number of sequences longer than each position
    at = np.repeat(places, batch_sizes)
    sequence = np.arange(len(at)) - np.repeat(np.cumsum(batch_sizes) - batch_sizes, batch_sizes)
    return Pack(order, cut.starts[order][sequence] + at, batch_sizes)


class PackedRows(NamedTuple):
    """S sequences, each with the observation after its last step, in packed order: R rows, of which B are steps.

    Attributes:
        rows: ``[R]``, locations of the rows.
        now: ``[B]``, indices of the steps among the R rows. The observations after them are the rows from S on, in the
            same order.
        batch_sizes: ``[L + 1]``, number of sequences with a row at each position; ``[1:]`` of it counts only the steps.
        order: ``[S]``, the sequences, longest first.
    """

    rows: Index
    now: Index
    batch_sizes: Index
    order: Index


def pack_with_next(starts: Index, lengths: Index) -> PackedRows:
    """Packs sequences whose final row follows their last step; requires at least one.

    Args:
        starts: ``[S]``, location of the first step of each.
        lengths: ``[S]``, steps of each, at least 1.
    """
    item = pack(Cut(starts, lengths + 1, np.zeros_like(starts)), np.arange(len(starts)))
    sizes = item.batch_sizes
    # Every row except the first of each sequence follows a step. That step is as many rows earlier as there are
    # sequences at its position.
    now = np.arange(sizes[0], len(item.steps)) - np.repeat(sizes[:-1], sizes[1:])
    return PackedRows(item.steps, now, sizes, item.order)


class SequenceMinibatches:
    """Draws minibatches of whole sequences.

    Args:
        batch_size: Steps in a minibatch, if all its sequences are whole.
        stride: Steps of a whole sequence.
        generator: Generator of the permutations, on the CPU, because the host must know which sequences are drawn.
    """

    def __init__(self, batch_size: int, stride: int, generator: torch.Generator) -> None:
        self.sequences = max(1, batch_size // stride)
        self._generator = generator

    def epoch(
        self, sources: Mapping[str, RowSource], table: SequenceTable, sizes: Sequence[int] | None = None
    ) -> Iterator[tuple[dict[str, Tensor], Sequences]]:
        """Yields minibatches that share no sequence, of ``batch_size // stride`` each; the remainder is left out.

        With fewer sequences there is one smaller minibatch.

        Args:
            sources: The columns, by step.
            table: The sequences.
            sizes: Sequences of each minibatch of one of several learners; see `learner.training.buffers.batches.Minibatches`.
        """
        total = len(table.cut.starts)
        size = min(self.sequences, total)
        order = torch.randperm(total, generator=self._generator)
        if sizes is None:
            sizes = [size] * (total // size)
        packs = [pack(table.cut, chosen.numpy()) for chosen in chosen_of(order, sizes)]
        device = table.policy.device
        steps = to_device(np.concatenate([item.steps for item in packs]), device)
        chosen = to_device(np.concatenate([item.order for item in packs]), device)
        lengths = [len(item.steps) for item in packs]
        counts = [len(item.order) for item in packs]
        for item, rows, which in zip(packs, torch.split(steps, lengths), torch.split(chosen, counts), strict=True):
            yield {name: source.at(rows) for name, source in sources.items()}, sequences_of(table, item, which)


def sequences_of(table: SequenceTable, item: Pack, which: Tensor) -> Sequences:
    """Returns the memories with which packed sequences begin.

    Args:
        table: All sequences.
        item: The packed sequences.
        which: ``[S]`` int64, their ``order`` on the device.
    """
    critic = None if table.critic is None else table.critic.index_select(0, which)
    return Sequences(torch.from_numpy(item.batch_sizes), table.policy.index_select(0, which), critic)


class Portion(NamedTuple):
    """B chosen steps.

    Attributes:
        steps: ``[B]`` int64.
        firsts: ``[B]`` int64, first step of each step's sequence; the step itself without memory.
        sequences: Layout of the policy's sequences; None without memory.
    """

    steps: Tensor
    firsts: Tensor
    sequences: Unrolled | None


def all_steps(count: int, table: SequenceTable | None, *, most: int, device: torch.device) -> Iterator[Portion]:
    """Yields all of ``count`` steps in portions of at most ``most``, or of one longer sequence."""
    if table is None:
        for steps in torch.split(torch.arange(count, device=device), most):
            yield Portion(steps, steps, None)
        return
    for chosen in split(np.arange(len(table.cut.starts)), table.cut.lengths, most):
        yield _portion(table, pack(table.cut, chosen))


def sampled_steps(count: int, table: SequenceTable | None, *, sample: int, device: torch.device) -> Portion:
    """Returns about ``sample`` of ``count`` steps, evenly spread; with memory, at least one whole sequence."""
    if table is None:
        size = min(sample, count)
        steps = torch.arange(size, device=device) * count // size
        return Portion(steps, steps, None)
    total = len(table.cut.starts)
    size = min(total, max(1, sample * total // count))
    return _portion(table, pack(table.cut, np.arange(size) * total // size))


def _portion(table: SequenceTable, item: Pack) -> Portion:
    device = table.policy.device
    firsts = np.concatenate([table.cut.starts[item.order[:size]] for size in item.batch_sizes])
    sequences = sequences_of(table, item, to_device(item.order, device))
    return Portion(to_device(item.steps, device), to_device(firsts, device), sequences.of_policy())
