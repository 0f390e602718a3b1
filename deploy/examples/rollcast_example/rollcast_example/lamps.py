"""An environment to try the package with: a dark room with two lamps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

HEIGHT, WIDTH, STEPS = 32, 24, 32


class Lamps(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Shows a faint glow in the left or right half of an image; choosing that half lights the room.

    The reward is 1 for a step that lights the room, so the return of an episode is at most 32, and 16 by chance.
    """

    observation_space = spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Starts in the dark."""
        super().reset(seed=seed)
        self._left = STEPS
        return self._picture(lit=False), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Chooses the left (0) or the right (1) half."""
        is_lit = bool(action == self._side)
        self._left -= 1
        return self._picture(lit=is_lit), float(is_lit), False, self._left == 0, {}

    def _picture(self, *, lit: bool) -> NDArray[np.uint8]:
        self._side = int(self.np_random.integers(2))
        picture = np.full((HEIGHT, WIDTH, 3), 128 if lit else 0, np.uint8)
        picture[:, self._side * WIDTH // 2 : (self._side + 1) * WIDTH // 2] += 64
        return picture
