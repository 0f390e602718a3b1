"""Random numbers for action draws, drawn in blocks because one numpy call costs more than sixteen numbers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

MAX_BLOCK_STEPS: Final = 64
MAX_BLOCK_NUMBERS: Final = 2**16
"""Most numbers in a block. Wide actions get fewer steps per block, so that drawing a block takes about 1 ms at most."""
_TINY: Final = np.finfo(np.float64).tiny
_FIRST_PARTS: Final = 2
"""Steps that are first cut from a block after `resize`: few, because the number may soon change again."""

_STREAM_KEY: Final = 0x6E6F6973
"""Separates action noise from environment seeds, which derive from the same run seed."""

FloatArray = NDArray[np.float32]


_Draw = Callable[[np.random.Generator, int, int], FloatArray]
"""Returns numbers of a generator, [steps, size]."""


class _Source(Protocol):
    def take(self) -> FloatArray:
        """Returns the numbers of the next step."""


class Noise:
    """Standard normal, Gumbel and uniform numbers for agents that act together; their number may change.

    Each kind has its own Philox generator, seeded by (run seed, actor index, stream). Two actors of a run draw
    different numbers, and draws of one kind do not affect those of the other.

    Args:
        run_seed: The seed of the run.
        actor_index: The actor's index in the run.
        agents: B, agents that act in one step; see `resize`.
        continuous_size: n, continuous axes.
        logits_size: Sum of the sizes of all discrete branches.

    Attributes:
        agents: B.
    """

    def __init__(
        self, run_seed: int, actor_index: int, *, agents: int, continuous_size: int = 0, logits_size: int = 0
    ) -> None:
        sequence = np.random.SeedSequence((run_seed, actor_index, _STREAM_KEY))
        normal, gumbel, uniform = (np.random.Generator(np.random.Philox(child)) for child in sequence.spawn(3))
        self.agents = agents
        self._blocks = (
            _Blocks(agents, continuous_size, partial(_normal, normal)),
            _Blocks(agents, logits_size, partial(_gumbel, gumbel)),
            _Blocks(agents, continuous_size, partial(_uniform, uniform)),
        )
        self._sources: Sequence[_Source] = self._blocks

    def resize(self, agents: int) -> None:
        """Sets the number of agents; numbers that were drawn and not used remain available to them."""
        self.agents = agents
        for blocks in self._blocks:
            blocks.resize(agents)

    def normal(self) -> FloatArray:
        """Returns new standard normal numbers, float32 [B, n]; they stay valid but must not be written to."""
        return self._sources[0].take()

    def gumbel(self) -> FloatArray:
        """Returns new standard Gumbel numbers, float32 [B, sum of branches]; they must not be written to."""
        return self._sources[1].take()

    def uniform(self) -> FloatArray:
        """Returns new uniform numbers in (-1, 1), float32 [B, n]; they must not be written to."""
        return self._sources[2].take()


def _uniform(generator: np.random.Generator, steps: int, size: int) -> FloatArray:
    """Returns uniform numbers, odd multiples of 2^-24, so that -1, 0 and 1 are never among them."""
    numbers = generator.random((steps, size), dtype=np.float32)  # multiples of 2^-24, from 0
    numbers *= np.float32(2.0)
    numbers -= np.float32(1.0)
    numbers += np.float32(2.0**-24)
    return numbers


def _normal(generator: np.random.Generator, steps: int, size: int) -> FloatArray:
    return generator.standard_normal((steps, size), dtype=np.float32)


def _gumbel(generator: np.random.Generator, steps: int, size: int) -> FloatArray:
    """Returns Gumbel numbers as `-log(E)` of exponential numbers E, in half the time of `Generator.gumbel`.

    They are drawn in float64, whose steps near 0 do not change the chance of rare choices. An E of 0 is raised: infinity
    would turn a masked logit into NaN.
    """
    numbers = generator.standard_exponential((steps, size))
    np.maximum(numbers, _TINY, out=numbers)
    np.log(numbers, out=numbers)
    found: FloatArray = np.negative(numbers, dtype=np.float32, casting="same_kind")
    return found


class _Blocks:
    """Hands out slices of a block and draws a new block when one is used up.

    A block is a list of rows, one per agent, so that the number of agents may change within a block.
    """

    def __init__(self, agents: int, size: int, draw: Callable[[int, int], FloatArray]) -> None:
        self._agents = agents
        self._size = size
        self._draw = draw
        self._block = np.zeros((0, size), np.float32)
        self._at = 0  # first unused row
        self._parts: list[FloatArray] = []
        self._most_parts = MAX_BLOCK_STEPS
        self._next = 0

    def resize(self, agents: int) -> None:
        self._at -= self._agents * (len(self._parts) - self._next)
        self._parts = []
        self._most_parts = _FIRST_PARTS
        self._next = 0
        self._agents = agents

    def take(self) -> FloatArray:
        if self._next >= len(self._parts):
            self._cut()
        part = self._parts[self._next]
        self._next += 1
        return part

    def _cut(self) -> None:
        agents = self._agents
        if len(self._block) - self._at < max(agents, 1):
            steps = max(1, min(MAX_BLOCK_STEPS, MAX_BLOCK_NUMBERS // max(1, agents * self._size)))
            self._block = self._draw(steps * agents, self._size)
            self._at = 0
        count = min(self._most_parts, (len(self._block) - self._at) // agents) if agents else 1
        self._most_parts = MAX_BLOCK_STEPS
        end = self._at + count * agents
        self._parts = list(self._block[self._at : end].reshape(count, agents, self._size))
        self._at = end
        self._next = 0


_ROUND_KEY: Final = 0x6C6F636B
"""Separates these numbers from all others that derive from the same run seed."""


class RoundNoise(Noise):
    """Standard normal, Gumbel and uniform numbers for environments with one agent each.

    Each environment has its own Philox generators, seeded by (run seed, actor index, environment, version). Its draws
    in a round therefore depend neither on earlier rounds, which a restarted actor has not seen, nor on the number of
    environments of its actor.

    Args:
        run_seed: The seed of the run.
        actor_index: The actor's index in the run.
        agents: E, environments.
        continuous_size: n, continuous axes.
        logits_size: Sum of the sizes of all discrete branches.
    """

    def __init__(
        self, run_seed: int, actor_index: int, *, agents: int, continuous_size: int = 0, logits_size: int = 0
    ) -> None:
        super().__init__(run_seed, actor_index, agents=agents, continuous_size=continuous_size, logits_size=logits_size)
        self._names = run_seed, actor_index, _ROUND_KEY
        self._continuous_size, self._logits_size = continuous_size, logits_size
        self.begin(0)

    def begin(self, version: int) -> None:
        """Begins a round under a version of the policy."""
        self._version = version
        seeds = [np.random.SeedSequence((*self._names, env, version)).spawn(3) for env in range(self.agents)]
        normals, gumbels, uniforms = (
            [np.random.Generator(np.random.Philox(kinds[kind])) for kinds in seeds] for kind in range(3)
        )
        self._sources = (
            _Draws(normals, self._continuous_size, _normal),
            _Draws(gumbels, self._logits_size, _gumbel),
            _Draws(uniforms, self._continuous_size, _uniform),
        )

    def resize(self, agents: int) -> None:
        """Sets the number of environments; restarts the round for them."""
        self.agents = agents
        self.begin(self._version)


class _Draws:
    """Blocks of steps, each drawn environment by environment."""

    def __init__(self, generators: list[np.random.Generator], size: int, draw: _Draw) -> None:
        self._generators = generators
        self._size = size
        self._draw = draw
        self._steps = max(1, min(MAX_BLOCK_STEPS, MAX_BLOCK_NUMBERS // max(1, len(generators) * size)))
        self._block = np.zeros((0, len(generators), size), np.float32)
        self._next = 0

    def take(self) -> FloatArray:
        if self._next == len(self._block):
            parts = [self._draw(generator, self._steps, self._size) for generator in self._generators]
            self._block, self._next = np.stack(parts, axis=1), 0
        part: FloatArray = self._block[self._next]
        self._next += 1
        return part
