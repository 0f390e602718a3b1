"""The sequences of a replay memory: where each begins, how long it is, and which are still whole.

All of it is on the host, which must know the lengths of what is drawn (see `learner.buffers.sequences`). Segments are cut
from their starts at every so many steps, where actors recorded what the policy remembered; so a sequence belongs to one
agent in one episode. When its first step makes room for a newer one, the rest of it is not drawn any more: what was
remembered before it is gone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from learner.buffers.sequences import Index, PackedRows, cut_segments
from learner.buffers.transfer import to_device


class DrawnSequences(NamedTuple):
    """S drawn sequences: R places in `ReplayMemory.storage`, packed (`learner.buffers.sequences.PackedRows`), B of steps.

    Attributes:
        rows: ``[R]`` int64, of steps and of what was seen after the last step of each sequence.
        now: ``[B]`` int64, which of the R are steps.
        batch_sizes: ``[L + 1]`` int64 on the CPU, sequences that have a row at each place.
    """

    rows: Tensor
    now: Tensor
    batch_sizes: Tensor

    @property
    def sequences(self) -> int:
        """S."""
        return int(self.batch_sizes[0])

    @property
    def step_rows(self) -> Tensor:
        """``[B]``, places of the steps."""
        return self.rows.index_select(0, self.now)

    @property
    def next_rows(self) -> Tensor:
        """``[B]``, places of what was seen after them."""
        return self.rows[self.sequences :]

    @property
    def first_rows(self) -> Tensor:
        """``[S]``, places of the first steps."""
        return self.rows[: self.sequences]


class ReplaySequences:
    """Absolute rows and lengths of sequences, oldest first.

    Args:
        stride: the most steps of a sequence.
        most: how many there may be at once.
    """

    def __init__(self, stride: int, most: int) -> None:
        self.stride = stride
        self._most = most
        self._rows = np.zeros(most, np.int64)
        self._lengths = np.zeros(most, np.int64)
        self._first = 0  # number of the oldest one
        self._next = 0  # number of the next one

    def __len__(self) -> int:
        """How many there are."""
        return self._next - self._first

    def add(self, starts: Index, lengths: Index) -> None:
        """Cuts new segments.

        Args:
            starts: ``[S]``, absolute row of the first step of each, behind all that are here.
            lengths: ``[S]``, their steps.
        """
        cut = cut_segments(lengths, self.stride)
        before = np.cumsum(lengths) - lengths
        self.append(starts[cut.segments] + cut.starts - before[cut.segments], cut.lengths)

    def append(self, rows: Index, lengths: Index) -> None:
        """Appends sequences that were cut already: absolute rows of their first steps, ascending, and lengths ``[Q]``."""
        numbers = np.arange(self._next, self._next + len(rows)) % self._most
        self._rows[numbers], self._lengths[numbers] = rows, lengths
        self._next += len(rows)

    def keep_from(self, row: int | None) -> None:
        """Forgets what begins before an absolute row; None forgets everything."""
        if row is None:
            self._first = self._next
            return
        begin, end = self._first, self._next
        while begin < end:  # the rows ascend
            middle = (begin + end) // 2
            begin, end = (middle + 1, end) if self._rows[middle % self._most] < row else (begin, middle)
        self._first = begin

    def live(self) -> tuple[Index, Index]:
        """Returns the absolute row of the first step of each ``[Q]``, oldest first, and how many steps each has."""
        numbers = np.arange(self._first, self._next) % self._most
        return self._rows[numbers], self._lengths[numbers]

    def draw(self, count: int, generator: torch.Generator) -> tuple[Index, Index]:
        """Draws absolute rows and lengths ``[count]`` uniformly, with replacement.

        So each step is as likely as every other one to be among those that are drawn.
        """
        drawn = torch.randint(len(self), (count,), generator=generator).numpy()
        numbers = (self._first + drawn) % self._most
        return self._rows[numbers], self._lengths[numbers]


def on_device(packed: PackedRows, device: torch.device) -> DrawnSequences:
    """Takes packed rows to a device, in one copy that nobody waits for."""
    together = to_device(np.concatenate((packed.rows, packed.now)), device)
    rows, now = torch.split(together, [len(packed.rows), len(packed.now)])
    return DrawnSequences(rows, now, torch.from_numpy(packed.batch_sizes))
