"""Tables of rows of a replay memory, on the host: from which rows a draw may begin, oldest first."""

from __future__ import annotations

import numpy as np
import torch

from learner.training.buffers.sequences import Index


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
