"""The sequences of a replay memory: their starts and lengths, and which are still complete.

All of it is on the host, which must know the lengths of drawn sequences (see `learner.training.buffers.sequences`). Segments are
cut from their starts at a fixed stride, where actors recorded the policy's memory; a sequence therefore belongs to one
agent in one episode. Once the first step of a sequence is evicted, the rest is not drawn any more, because the memory
before it is lost.

With a burn-in, a sequence also has the last steps of the one before it: those only warm its memory, so that each step
is trained in one sequence (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement
Learning", section 3). The first sequence of a segment has none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from learner.training.buffers.sequences import Index, PackedRows, cut_segments
from learner.training.buffers.transfer import to_device


class RowTable:
    """Holds absolute rows in ascending order, each with further numbers.

    Args:
        most: Largest number of rows at once.
        further: Further numbers of each row.
    """

    def __init__(self, most: int, further: int = 0) -> None:
        self._most = most
        self._values = np.zeros((1 + further, most), np.int64)
        self._first = 0  # number of the oldest row
        self._next = 0  # number of the next row

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self._next - self._first

    def append(self, *values: Index) -> None:
        """Appends rows ``[Q]``, ascending and after all existing ones, and their further numbers ``[Q]`` each."""
        numbers = np.arange(self._next, self._next + len(values[0])) % self._most
        self._values[:, numbers] = values
        self._next += len(numbers)

    def keep_from(self, row: int | None) -> None:
        """Removes entries of rows before an absolute row; None removes all."""
        if row is None:
            self._first = self._next
            return
        begin, end = self._first, self._next
        while begin < end:  # the rows are ascending
            middle = (begin + end) // 2
            begin, end = (middle + 1, end) if self._values[0, middle % self._most] < row else (begin, middle)
        self._first = begin

    def live(self) -> tuple[Index, ...]:
        """Returns the rows, oldest first, and their further numbers, ``[Q]`` each."""
        return self._at(np.arange(self._first, self._next))

    def draw(self, count: int, generator: torch.Generator) -> tuple[Index, ...]:
        """Draws rows and their further numbers ``[count]`` uniformly, with replacement."""
        return self._at(self._first + torch.randint(len(self), (count,), generator=generator).numpy())

    def _at(self, numbers: Index) -> tuple[Index, ...]:
        return tuple(self._values[:, numbers % self._most])


class WarmRows(NamedTuple):
    """The burn-in of W of S drawn sequences, each of the same number of steps.

    Attributes:
        rows: Places of its steps in packed order: the first of each sequence, then the second of each, and so on.
        sequences: ``[W]`` int64, the sequences, ascending.
        batch_sizes: ``[burn_in]`` int64 on the CPU, W at each position.
    """

    rows: Tensor
    sequences: Tensor
    batch_sizes: Tensor


class DrawnSequences(NamedTuple):
    """S drawn sequences in packed order: R places in `ReplayMemory.storage`, of which B are steps.

    The order is that of `learner.training.buffers.sequences.PackedRows`.

    Attributes:
        rows: ``[R]`` int64, of steps and of the observation after the last step of each sequence.
        now: ``[B]`` int64, indices of the steps among the R rows.
        batch_sizes: ``[L + 1]`` int64 on the CPU, number of sequences with a row at each position.
        memory_rows: ``[S]`` int64, places of the recorded memories: the first steps, or those of the burn-in.
        warm: The burn-in; None if no sequence has one.
    """

    rows: Tensor
    now: Tensor
    batch_sizes: Tensor
    memory_rows: Tensor
    warm: WarmRows | None = None

    @property
    def sequences(self) -> int:
        """Number of sequences, S."""
        return int(self.batch_sizes[0])

    @property
    def step_rows(self) -> Tensor:
        """Places of the steps, ``[B]``."""
        return self.rows.index_select(0, self.now)

    @property
    def next_rows(self) -> Tensor:
        """Places of the observations after them, ``[B]``."""
        return self.rows[self.sequences :]


class ReplaySequences(RowTable):
    """Holds absolute rows, lengths and burn-ins of sequences, oldest first.

    Each step is equally likely to be among the drawn ones. The row of a sequence is its first, burn-in included; its
    length counts the trained steps alone.

    Args:
        stride: Steps between two sequences; the first of a segment is longer by the burn-in.
        most: Largest number of sequences at once.
        burn_in: Steps before a sequence that warm its memory.
    """

    def __init__(self, stride: int, most: int, burn_in: int = 0) -> None:
        super().__init__(most, further=2)
        self.stride = stride
        self.burn_in = burn_in

    def add(self, starts: Index, lengths: Index) -> None:
        """Cuts new segments into sequences.

        Args:
            starts: ``[S]``, absolute row of the first step of each, after all existing ones.
            lengths: ``[S]``, number of steps.
        """
        # The steps behind the first burn-in are divided; the first sequence also has those before.
        cut = cut_segments(np.maximum(lengths - self.burn_in, 1), self.stride)
        number = np.arange(len(cut.segments)) - np.searchsorted(cut.segments, cut.segments)
        begin = self.stride * number
        warms = np.where(number > 0, self.burn_in, 0)
        ends = np.minimum(begin + self.stride + self.burn_in, lengths[cut.segments])
        self.append(starts[cut.segments] + begin, ends - begin - warms, warms)


def on_device(packed: PackedRows, device: torch.device, warms: Index | None = None) -> DrawnSequences:
    """Copies packed rows to a device in one copy without waiting.

    Args:
        packed: The sequences; the rows before each are its burn-in.
        device: The device.
        warms: ``[S]``, steps of the burn-in of each sequence in packed order, 0 or one other number; None for none.
    """
    firsts = packed.rows[: packed.batch_sizes[0]]
    warms = np.zeros_like(firsts) if warms is None else warms
    warmed, burn_in = np.flatnonzero(warms), int(warms.max())
    before = np.ravel(firsts[warmed] - burn_in + np.arange(burn_in)[:, np.newaxis])
    parts = (packed.rows, packed.now, firsts - warms, before, warmed)
    together = to_device(np.concatenate(parts), device)
    rows, now, memory_rows, warm_rows, sequences = torch.split(together, [len(part) for part in parts])
    warm = WarmRows(warm_rows, sequences, torch.full((burn_in,), len(warmed), dtype=torch.int64)) if burn_in else None
    return DrawnSequences(rows, now, torch.from_numpy(packed.batch_sizes), memory_rows, warm)
