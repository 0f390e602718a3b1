"""Environments and policies whose steps can be followed by hand, and broken ones."""

import sys
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]


class Counting(gymnasium.Env[Observation, Any]):
    """Shows how many steps its episode has; the reward is the action; episodes last as long as they are told.

    Args:
        steps: of an episode.
        truncates: an episode is ended from outside.
        nan_at: the step that shows NaN, or -1.
    """

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,), np.float32)

    def __init__(self, steps: int = 3, *, truncates: bool = False, nan_at: int = -1, bounds: float = 2.0) -> None:
        self.action_space = gymnasium.spaces.Box(-bounds, bounds, (1,), np.float32)
        self._steps = steps
        self._truncates = truncates
        self._nan_at = nan_at
        self._count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins."""
        super().reset(seed=seed)
        self._count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Counts."""
        self._count += 1
        seen = np.full(1, np.nan if self._count == self._nan_at else self._count, np.float32)
        ended = self._count >= self._steps
        return seen, float(action[0]), ended and not self._truncates, ended and self._truncates, {}


def tenth(seen: Observation) -> float:
    """A tenth of what is seen, and a quarter more."""
    return float(seen[0]) / 10 + 0.25


def too_many(seen: Observation) -> list[float]:
    """Two actions where one is needed."""
    return [0.0, 1.0]


def no_arguments() -> float:
    """Takes nothing of what it is called with."""
    return 0.0


def falls_over(seen: Observation) -> float:
    """A fault of the user's."""
    raise RuntimeError("no idea\nat all")


class Remembering:
    """A policy with a memory: its action is how often it was called in the episode."""

    def __init__(self) -> None:
        self._calls = 0

    def reset(self) -> None:
        """A new episode."""
        self._calls = 0

    def __call__(self, seen: Observation) -> float:
        """Acts."""
        self._calls += 1
        return float(self._calls)


def exits(seen: Observation) -> float:
    """Takes itself for a program."""
    sys.exit(3)


class Interrupts:
    """Cannot be made."""

    def __init__(self) -> None:
        raise KeyboardInterrupt


class Exiting(Counting):
    """Ends the program in its second step."""

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Once, and no more."""
        if self._count:
            sys.exit("its window was closed")
        return super().step(action)
