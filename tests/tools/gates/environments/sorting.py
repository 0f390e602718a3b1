"""Sorting: a variable number of tiles must be taken in ascending order."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

NUMBERS = 12
"""Numbers that tiles may bear."""
FEWEST, MOST = 4, 10
"""Tiles at the beginning."""
WIDTH = NUMBERS + 1


class Sorting(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Takes a number at each step: a share of 1 for the smallest that still lies there, and the end for any other.

    A sorted table brings 1.

    Args:
        attention: Whether tiles are shown as a list of entities; else as one vector, in the same order, which ends in
            zeros where there are fewer tiles.
    """

    def __init__(self, attention: bool = True) -> None:
        tile = spaces.Box(0.0, 1.0, (WIDTH,), np.float32)
        self.action_space = spaces.Discrete(NUMBERS)
        self._attention = attention
        if attention:
            tiles = spaces.Sequence(tile, stack=True)
            setattr(tiles, "max_length", MOST)  # noqa: B010 - says how many entities the list has at most
            self.observation_space: spaces.Space[Any] = tiles
        else:
            self.observation_space = spaces.Box(0.0, 1.0, (MOST * WIDTH,), np.float32)
        self._tiles = np.zeros(0, np.int64)
        self._total = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Places tiles with different numbers."""
        super().reset(seed=seed)
        self._total = int(self.np_random.integers(FEWEST, MOST + 1))
        self._tiles = self.np_random.permutation(NUMBERS)[: self._total]
        return self._view(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Takes away the tile with the number, if that is the smallest, and lays out the others again."""
        is_right = int(action) == int(self._tiles.min())
        if is_right:
            self._tiles = self.np_random.permutation(self._tiles[self._tiles != int(action)])
        is_over = not is_right or not len(self._tiles)
        return self._view(), is_right / self._total, is_over, False, {}

    def _view(self) -> NDArray[np.float32]:
        tiles = np.zeros((len(self._tiles), WIDTH), np.float32)
        tiles[np.arange(len(tiles)), self._tiles] = 1.0
        tiles[:, NUMBERS] = len(tiles) / MOST
        if self._attention:
            return tiles
        flat = np.zeros(MOST * WIDTH, np.float32)
        flat[: tiles.size] = tiles.ravel()
        return flat
