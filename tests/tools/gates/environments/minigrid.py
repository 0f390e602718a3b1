"""MiniGrid's smallest room: walk from a random cell to the goal, within 100 steps."""

from typing import Any

import gymnasium
from minigrid.wrappers import FlatObsWrapper


def empty_random() -> gymnasium.Env[Any, Any]:
    """Makes MiniGrid-Empty-Random-5x5-v0 with one vector of 2,835 values, as rl-zoo trains it."""
    return FlatObsWrapper(gymnasium.make("MiniGrid-Empty-Random-5x5-v0"))
