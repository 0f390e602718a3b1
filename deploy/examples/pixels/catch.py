"""Catch: a ball falls down an image, and a paddle at the lower edge must catch it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

SIDE_PIXELS = 84
CELL_PIXELS = 4
CELLS = SIDE_PIXELS // CELL_PIXELS
PADDLE_CELLS = 3
_LAST = CELLS - 1


class Catch(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Drops one ball per episode of 20 steps; the last reward is 1 for a catch and -1 for a miss.

    The paddle starts in the middle and moves by at most one cell per step. It can reach every ball, but most of them only
    if it starts immediately. Observations are images ``[84, 84, 1]`` of bytes; actions are left, stay, right.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (SIDE_PIXELS, SIDE_PIXELS, 1), np.uint8)
        self.action_space = spaces.Discrete(3)
        self._ball = np.zeros(2, np.int64)
        self._paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Places a new ball at a random cell of the upper edge."""
        super().reset(seed=seed)
        self._ball[:] = 0, self.np_random.integers(CELLS)
        self._paddle = CELLS // 2
        return self._picture(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Moves the paddle, then lets the ball fall by one cell."""
        self._paddle = int(np.clip(self._paddle + int(action) - 1, 1, _LAST - 1))
        self._ball[0] += 1
        is_down = bool(self._ball[0] == _LAST)
        is_caught = abs(int(self._ball[1]) - self._paddle) <= PADDLE_CELLS // 2
        reward = 0.0 if not is_down else 1.0 if is_caught else -1.0
        return self._picture(), reward, is_down, False, {}

    def _picture(self) -> NDArray[np.uint8]:
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[_LAST, self._paddle - 1 : self._paddle + 2] = 160
        cells[self._ball[0], self._ball[1]] = 255
        return np.kron(cells, np.ones((CELL_PIXELS, CELL_PIXELS), np.uint8))[:, :, None]
