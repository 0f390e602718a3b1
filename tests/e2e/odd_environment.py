"""Environments with odd names, shifted numbers and odd bounds; `gymnasium.make("odd_environment:OddNumbers-v0")` makes one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 12


class Odd(gymnasium.Env[Any, Any]):
    """Rewards depend on each number of each action, so that equal returns mean equal actions.

    Args:
        continuous: Takes numbers; otherwise choices.
    """

    def __init__(self, *, continuous: bool) -> None:
        self.observation_space = spaces.Dict(
            {
                "camera/front\n\"'é": spaces.Box(0, 255, (24, 24, 3), np.uint8),
                "0": spaces.Discrete(4, start=3),
                "pair": spaces.Tuple(
                    [spaces.Box(-1.0, 5.0, (2, 2), np.float32), spaces.MultiDiscrete([2, 3], start=[1, -2])]
                ),
                "bits": spaces.MultiBinary(3),
            }
        )
        low = np.array([[-2.0], [1.0]], np.float32)
        high = np.array([[6.0], [1.5]], np.float32)
        self.action_space: Any = (
            spaces.Box(low, high) if continuous else spaces.MultiDiscrete(np.array([[3, 2]]), start=np.array([[-1, 5]]))
        )
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Refuses what is not in the space."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action {action!r} is not in {self.action_space}")
        self._steps += 1
        reward = float(np.sum(np.asarray(action, np.float64).ravel() * [1.0, 0.37]) * self._steps)
        return self.observation_space.sample(), reward, False, self._steps >= STEPS, {}


gymnasium.register("OddNumbers-v0", f"{__name__}:Odd", kwargs={"continuous": True})
gymnasium.register("OddChoices-v0", f"{__name__}:Odd", kwargs={"continuous": False})
