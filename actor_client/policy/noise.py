"""Random numbers for action draws, made in blocks because a numpy call costs more than sixteen numbers."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_BLOCK_STEPS: Final = 64
MAX_BLOCK_NUMBERS: Final = 2**16
"""A block of wide actions holds fewer steps, so that drawing one never stalls a step noticeably (about 1 ms)."""

_STREAM_KEY: Final = 0x6E6F6973
"""Separates action noise from environment seeds that grow from the same run seed."""

FloatArray = NDArray[np.float32]


class Noise:
    """Standard normal and standard Gumbel numbers for a fixed number of agents.

    Both kinds come from Philox generators of their own, seeded by (run seed, actor index, stream): two actors of a run
    draw different numbers, and the numbers of one kind do not depend on how many of the other were drawn.

    Args:
        run_seed: The seed of the run.
        actor_index: Which actor of the run this is.
        agents: B, agents that act in one step.
        continuous_size: n, continuous axes.
        logits_size: Sum of the sizes of all discrete branches.
    """

    __slots__ = ("_gumbel", "_normal", "agents")

    def __init__(
        self, run_seed: int, actor_index: int, *, agents: int, continuous_size: int = 0, logits_size: int = 0
    ) -> None:
        sequence = np.random.SeedSequence((run_seed, actor_index, _STREAM_KEY))
        normal, gumbel = (np.random.Generator(np.random.Philox(child)) for child in sequence.spawn(2))
        self.agents = agents
        self._normal = _Blocks((agents, continuous_size), lambda shape: normal.standard_normal(shape, dtype=np.float32))
        # Drawn in float64, where the generator never returns an infinity, which a masked logit would turn into NaN.
        self._gumbel = _Blocks((agents, logits_size), lambda shape: gumbel.gumbel(size=shape).astype(np.float32))

    def normal(self) -> FloatArray:
        """Returns new standard normal numbers, float32 [B, n]; valid for good, but not to be written to."""
        return self._normal.take()

    def gumbel(self) -> FloatArray:
        """Returns new standard Gumbel numbers, float32 [B, sum of branches]; not to be written to."""
        return self._gumbel.take()


class _Blocks:
    """Hands out slices of a block and draws a new block when one is used up."""

    __slots__ = ("_block", "_draw", "_next", "_shape")

    def __init__(self, row_shape: tuple[int, int], draw: Callable[[tuple[int, ...]], FloatArray]) -> None:
        numbers = row_shape[0] * row_shape[1]
        steps = max(1, min(MAX_BLOCK_STEPS, MAX_BLOCK_NUMBERS // max(1, numbers)))
        self._shape = (steps, *row_shape)
        self._draw = draw
        self._block: list[FloatArray] = []
        self._next = 0

    def take(self) -> FloatArray:
        if self._next >= len(self._block):
            self._block = list(self._draw(self._shape))
            self._next = 0
        row = self._block[self._next]
        self._next += 1
        return row
