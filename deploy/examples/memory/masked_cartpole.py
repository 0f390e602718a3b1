"""CartPole without velocities: the policy must remember where cart and pole were."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

POSITION, ANGLE = 0, 2


class Positions(gymnasium.ObservationWrapper[NDArray[np.float32], Any, NDArray[np.float32]]):
    """Shows only the position of the cart and the angle of the pole.

    Args:
        env: CartPole.
    """

    def __init__(self, env: gymnasium.Env[NDArray[np.float32], Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box):
            raise TypeError(f"the observation space must be a Box, as in CartPole; got {space}")
        chosen = [POSITION, ANGLE]
        self.observation_space = spaces.Box(space.low[chosen], space.high[chosen], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Removes the velocities."""
        return observation[[POSITION, ANGLE]]


def make() -> Positions:
    """Returns CartPole-v1 without velocities."""
    return Positions(gymnasium.make("CartPole-v1"))
