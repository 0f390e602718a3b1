"""A combination lock whose length is an environment parameter: chance opens it only while it is short."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

LONGEST = 12
"""Digits without parameters."""
_DIGITS = (2, 0, 3, 1, 1, 3, 2, 0, 3, 2, 1, 0)


class Combination(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Takes one of four digits at each step, and ends with the first wrong one.

    Only the last digit brings a reward: the lock's share of the longest one. The parameter `length` shortens the lock.
    The observation is the number of digits so far, one-hot; of 4**12 random sequences one opens the longest lock.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (LONGEST,), np.float32)
        self.action_space = spaces.Discrete(4)
        self._length = LONGEST
        self._position = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins with the first digit."""
        super().reset(seed=seed)
        self._length = round((options or {}).get("parameters", {}).get("length", LONGEST))
        self._position = 0
        return self._view(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Tries a digit."""
        is_right = int(action) == _DIGITS[self._position]
        self._position += is_right
        is_open = self._position == self._length
        return self._view(), self._length / LONGEST if is_open else 0.0, is_open or not is_right, False, {}

    def _view(self) -> NDArray[np.float32]:
        digits = np.zeros(LONGEST, np.float32)
        digits[min(self._position, LONGEST - 1)] = 1.0
        return digits
