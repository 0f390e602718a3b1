"""Random numbers of lock-step: those of a round follow from who acts in it, and not from what was drawn before."""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.noise import MAX_BLOCK_NUMBERS, MAX_BLOCK_STEPS, Noise

_STREAM_KEY: Final = 0x6C6F636B
"""Separates these numbers from all others that grow from the same run seed."""

FloatArray = NDArray[np.float32]


class _Draw(Protocol):
    def __call__(self, generator: np.random.Generator, steps: int, size: int) -> FloatArray: ...


class RoundNoise(Noise):
    """Standard normal and standard Gumbel numbers for environments with one agent each.

    Each environment has Philox generators of its own, seeded by (run seed, actor index, environment, version): so what
    it draws in a round depends neither on the rounds before, which a restarted actor has not seen, nor on how many
    environments its actor has.

    Args:
        run_seed: The seed of the run.
        actor_index: Which actor of the run this is.
        agents: E, environments.
        continuous_size: n, continuous axes.
        logits_size: Sum of the sizes of all discrete branches.
    """

    __slots__ = ("_continuous_size", "_logits_size", "_names", "_rounds", "_version")

    def __init__(
        self, run_seed: int, actor_index: int, *, agents: int, continuous_size: int = 0, logits_size: int = 0
    ) -> None:
        super().__init__(run_seed, actor_index, agents=agents, continuous_size=continuous_size, logits_size=logits_size)
        self._names = run_seed, actor_index, _STREAM_KEY
        self._continuous_size, self._logits_size = continuous_size, logits_size
        self.begin(0)

    def begin(self, version: int) -> None:
        """Begins a round under a version of the policy."""
        self._version = version
        seeds = [np.random.SeedSequence((*self._names, env, version)).spawn(2) for env in range(self.agents)]
        normals, gumbels = ([np.random.Generator(np.random.Philox(pair[kind])) for pair in seeds] for kind in (0, 1))
        self._rounds = _Draws(normals, self._continuous_size, _normal), _Draws(gumbels, self._logits_size, _gumbel)

    def resize(self, agents: int) -> None:
        """So many environments act from now on; the round begins anew for them."""
        self.agents = agents
        self.begin(self._version)

    def normal(self) -> FloatArray:
        """Returns new standard normal numbers, float32 [E, n]; not to be written to."""
        return self._rounds[0].take()

    def gumbel(self) -> FloatArray:
        """Returns new standard Gumbel numbers, float32 [E, sum of branches]; not to be written to."""
        return self._rounds[1].take()


def _normal(generator: np.random.Generator, steps: int, size: int) -> FloatArray:
    return generator.standard_normal((steps, size), dtype=np.float32)


def _gumbel(generator: np.random.Generator, steps: int, size: int) -> FloatArray:
    return generator.gumbel(size=(steps, size)).astype(np.float32)  # in float64 it is never infinite


class _Draws:
    """Blocks of steps, each drawn environment by environment."""

    __slots__ = ("_block", "_draw", "_generators", "_next", "_size", "_steps")

    def __init__(self, generators: list[np.random.Generator], size: int, draw: _Draw) -> None:
        self._generators = generators
        self._size = size
        self._draw = draw
        numbers = max(1, len(generators) * size)
        self._steps = max(1, min(MAX_BLOCK_STEPS, MAX_BLOCK_NUMBERS // numbers))
        self._block = np.zeros((0, len(generators), size), np.float32)
        self._next = 0

    def take(self) -> FloatArray:
        if self._next == len(self._block):
            parts = [self._draw(generator, self._steps, self._size) for generator in self._generators]
            self._block, self._next = np.stack(parts, axis=1), 0
        part: FloatArray = self._block[self._next]
        self._next += 1
        return part
