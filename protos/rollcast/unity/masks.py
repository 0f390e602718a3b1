"""Reads action masks: Unity's masks mark forbidden choices, those of networks and columns mark allowed ones."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rollcast.unity.communicator_objects import agent_pb2


class MaskReader:
    """Reads the masks of one behavior's agents.

    Args:
        branches: Number of choices of each branch.
    """

    __slots__ = ("_offsets", "_size", "_warned")

    def __init__(self, branches: Sequence[int]) -> None:
        self._size = sum(branches)
        self._offsets = np.cumsum((0, *branches))[:-1]
        self._warned = False

    def read(self, infos: Sequence[agent_pb2.AgentInfoProto]) -> tuple[NDArray[np.uint8] | None, str | None]:
        """Returns masks, uint8 [n, sum of branches], 1 = allowed, None if all are; and a line for the log, or None.

        An invalid mask (a wrong length, a branch without a choice) allows everything; only the first one is logged.
        """
        if not self._size:
            return None, None
        forbidden = [info.action_mask for info in infos]
        if not any(forbidden):
            return None, None
        size, line = self._size, None
        masks = np.ones((len(infos), size), np.uint8)
        for row, (info, mask) in enumerate(zip(infos, forbidden, strict=True)):
            if len(mask) == size:
                masks[row] -= np.fromiter(mask, np.uint8, size)
            elif mask:
                line = f"agent {info.id}: its mask has {len(mask)} entries for {size} choices, so all are allowed"
        closed = (np.add.reduceat(masks, self._offsets, axis=1) == 0).any(axis=1)
        if closed.any():
            masks[closed] = 1
            line = (
                f"agent {infos[int(closed.argmax())].id}: its mask forbids a whole branch, so all choices are allowed"
            )
        if self._warned:
            line = None
        self._warned |= line is not None
        return masks, line
