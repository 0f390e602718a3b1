"""Numbers that are finite and too large to train on: one client's rewards must not end the training of all."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.faults import NOT_FINITE

LARGEST: Final = 1e15
"""Losses, normalizers and the optimizer square observations, returns and gradients along memories, in float32, whose largest number is 3.4e38."""
_SQUARED: Final = ("obs/", "final_obs/", "reward", "group_reward", "prev_reward", "memory")


def find_excess(chunk: Chunk) -> tuple[str, str] | None:
    """Looks for the first observation, reward or memory beyond `LARGEST`, in a chunk without infinite numbers.

    Returns:
        The ledger's word, which is that of infinite numbers, and a detail for the log; None if there is none.
    """
    for name, array in chunk.columns.items():
        if name.startswith(_SQUARED) and array.dtype.kind == "f" and array.size and _exceeds(array):
            row = int(np.argwhere(np.abs(array) > LARGEST)[0][0])
            return NOT_FINITE, f"column {name}, row {row}: a value beyond {LARGEST:g}, whose square is no number"
    return None


def _exceeds(array: NDArray[Any]) -> bool:
    """Compares without a copy of the column."""
    return bool(array.max() > LARGEST or array.min() < -LARGEST)
