"""Sequences for recurrent networks: segments cut at every so many steps, and minibatches of whole sequences.

Lengths are known on the host, so which rows a minibatch has is computed there, and sent to the device once an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.buffers.batches import Source
from learner.buffers.transfer import to_device
from learner.networks.lstm import Unrolled
from learner.networks.value import Sequences

Index = NDArray[np.int64]


class Cut(NamedTuple):
    """Q sequences that segments of N steps were cut into, on the host.

    Attributes:
        starts: ``[Q]``, the first step of each, 0 <= step < N.
        lengths: ``[Q]``, at least 1.
        segments: ``[Q]``, the segment it is part of.
    """

    starts: Index
    lengths: Index
    segments: Index


@dataclass(frozen=True, slots=True)
class SequenceTable:
    """Sequences, and what networks remember before each.

    Attributes:
        cut: where they are.
        policy: ``[Q, memory_size]``, as actors recorded it.
        critic: ``[Q, memory_size]`` of a critic with a memory of its own; None for a head on the policy's.
    """

    cut: Cut
    policy: Tensor
    critic: Tensor | None


class Pack(NamedTuple):
    """S chosen sequences in packed order (see `learner.networks.lstm`).

    Attributes:
        order: ``[S]``, the chosen ones, longest first.
        steps: ``[B]``, their steps.
        batch_sizes: ``[L]``, sequences that have a step at each place.
    """

    order: Index
    steps: Index
    batch_sizes: Index


def cut_segments(lengths: Index, stride: int) -> Cut:
    """Cuts segments from their starts into sequences of ``stride`` steps; the last one of each may be shorter.

    Args:
        lengths: ``[S]``, steps of the segments, which lie one after another.
        stride: the longest sequence.
    """
    counts = -(-lengths // stride)
    segments = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(len(segments)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = (np.cumsum(lengths) - lengths)[segments] + stride * within
    return Cut(starts, np.minimum(stride, lengths[segments] - stride * within), segments)


def pack(cut: Cut, chosen: Index) -> Pack:
    """Packs chosen sequences, at least one."""
    order = chosen[np.argsort(-cut.lengths[chosen], kind="stable")]
    lengths = cut.lengths[order]
    places = np.arange(lengths[0])
    batch_sizes = np.searchsorted(-lengths, -places, side="left")  # how many are longer than each place
    at = np.repeat(places, batch_sizes)
    sequence = np.arange(len(at)) - np.repeat(np.cumsum(batch_sizes) - batch_sizes, batch_sizes)
    return Pack(order, cut.starts[order][sequence] + at, batch_sizes)


class PackedRows(NamedTuple):
    """S sequences, each with what was seen after its last step, in packed order: R rows, of which B are steps.

    Attributes:
        rows: ``[R]``, where they are.
        now: ``[B]``, which of the R are steps. What was seen after them are the rows from S on, in the same order.
        batch_sizes: ``[L + 1]``, sequences that have a row at each place; those of the steps alone are ``[1:]`` of it.
    """

    rows: Index
    now: Index
    batch_sizes: Index


def pack_with_next(starts: Index, lengths: Index) -> PackedRows:
    """Packs sequences, at least one, whose final row follows their last step.

    Args:
        starts: ``[S]``, where the first step of each is.
        lengths: ``[S]``, steps of each, at least 1.
    """
    item = pack(Cut(starts, lengths + 1, np.zeros_like(starts)), np.arange(len(starts)))
    sizes = item.batch_sizes
    # Every row but the first of each sequence was seen after a step, which is as many rows before it as there are
    # sequences at that step's place.
    now = np.arange(sizes[0], len(item.steps)) - np.repeat(sizes[:-1], sizes[1:])
    return PackedRows(item.steps, now, sizes)


def split_by_steps(cut: Cut, chosen: Index, most_steps: int) -> Iterator[Index]:
    """Splits sequences into runs of at most ``most_steps`` steps, or of one sequence that has more."""
    ends = np.cumsum(cut.lengths[chosen])
    begin, done = 0, 0
    while begin < len(chosen):
        end = max(begin + 1, int(np.searchsorted(ends, done + most_steps, side="right")))
        yield chosen[begin:end]
        begin, done = end, int(ends[end - 1])


class SequenceMinibatches:
    """Draws minibatches of whole sequences.

    Args:
        batch_size: steps in a minibatch, if all its sequences are whole.
        stride: steps of a whole sequence.
        generator: of the permutations; on the CPU, for the host must know which sequences are drawn.
    """

    def __init__(self, batch_size: int, stride: int, generator: torch.Generator) -> None:
        self.sequences = max(1, batch_size // stride)
        self._generator = generator

    def epoch(
        self, sources: Mapping[str, Source], table: SequenceTable
    ) -> Iterator[tuple[dict[str, Tensor], Sequences]]:
        """Yields minibatches that share no sequence, of ``batch_size // stride`` each; the remainder is left out.

        With fewer sequences than that there is one smaller minibatch.

        Args:
            sources: the columns, by step.
            table: the sequences.
        """
        total = len(table.cut.starts)
        size = min(self.sequences, total)
        order = torch.randperm(total, generator=self._generator).numpy()[: total // size * size]
        packs = [pack(table.cut, chosen) for chosen in order.reshape(-1, size)]
        device = table.policy.device
        steps = to_device(np.concatenate([item.steps for item in packs]), device)
        chosen = to_device(np.concatenate([item.order for item in packs]), device)
        lengths = [len(item.steps) for item in packs]
        for item, rows, which in zip(packs, torch.split(steps, lengths), torch.split(chosen, size), strict=True):
            yield {name: source.at(rows) for name, source in sources.items()}, sequences_of(table, item, which)


def sequences_of(table: SequenceTable, item: Pack, which: Tensor) -> Sequences:
    """Returns the memories that packed sequences begin with.

    Args:
        table: all sequences.
        item: the packed ones.
        which: ``[S]`` int64, their ``order`` on the device.
    """
    critic = None if table.critic is None else table.critic.index_select(0, which)
    return Sequences(torch.from_numpy(item.batch_sizes), table.policy.index_select(0, which), critic)


class Portion(NamedTuple):
    """B chosen steps.

    Attributes:
        steps: ``[B]`` int64.
        firsts: ``[B]`` int64, the first step of each one's sequence; the step itself without memory.
        sequences: how they are sequences of the policy; None without memory.
    """

    steps: Tensor
    firsts: Tensor
    sequences: Unrolled | None


def all_steps(count: int, table: SequenceTable | None, *, most: int, device: torch.device) -> Iterator[Portion]:
    """Yields all of ``count`` steps in portions of at most ``most``, or of one sequence that has more."""
    if table is None:
        for steps in torch.split(torch.arange(count, device=device), most):
            yield Portion(steps, steps, None)
        return
    for chosen in split_by_steps(table.cut, np.arange(len(table.cut.starts)), most):
        yield _portion(table, pack(table.cut, chosen))


def sampled_steps(count: int, table: SequenceTable | None, *, sample: int, device: torch.device) -> Portion:
    """Returns about ``sample`` of ``count`` steps, evenly spread; whole sequences, at least one, with a memory."""
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
