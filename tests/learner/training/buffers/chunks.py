"""Makes chunks with known numbers for tests of ring and buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk

SPEC = BehaviorSpec("Test", (ObservationSpec("state", np.dtype(np.float32), (2,)),), ActionSpec(discrete_branches=(3,)))


def make_chunk(
    lengths: Sequence[int],
    *,
    ends: Sequence[SegmentEnd] | None = None,
    first: int = 0,
    version: int = 0,
    offsets: Sequence[int] | None = None,
    **columns: NDArray[Any],
) -> Chunk:
    """Makes a chunk whose observations and rewards count up from ``first``; final observations are negative.

    The observation of step n is [n, -1], its reward n, its log-probability -n / 1000; the final observation of the
    segment whose last step is n is [-n, -2].
    """
    rows = sum(lengths)
    steps = np.arange(first, first + rows, dtype=np.float32)
    last = steps[np.cumsum(lengths) - 1]
    values: dict[str, NDArray[Any]] = {
        "obs/state": np.stack((steps, np.full_like(steps, -1)), axis=1),
        "final_obs/state": np.stack((-last, np.full_like(last, -2)), axis=1),
        "discrete_action": (steps[:, None] % 3).astype(np.int32),
        "log_prob": -steps[:, None] / 1000,
        "reward": steps,
        "length": np.array(lengths, np.uint32),
        "first_step": np.zeros(len(lengths), np.uint32),
        "end": np.array(ends or [SegmentEnd.CUT] * len(lengths), np.uint8),
        **columns,
    }
    if offsets is not None:
        values["version_offset"] = np.array(offsets, np.uint32)
    return Chunk(generation=1, base_version=version, segments=len(lengths), rows=rows, columns=values)
