"""Environments and policies whose steps are simple to follow, and faulty ones."""

import sys
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]


class Counting(gymnasium.Env[Observation, Any]):
    """Shows the number of steps in its episode; the reward is the action.

    Args:
        steps: Of an episode.
        truncates: An episode is ended from outside.
        nan_at: The step that shows NaN, or -1.
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
        """Starts an episode."""
        super().reset(seed=seed)
        self._count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Counts."""
        self._count += 1
        seen = np.full(1, np.nan if self._count == self._nan_at else self._count, np.float32)
        ended = self._count >= self._steps
        return seen, float(action[0]), ended and not self._truncates, ended and self._truncates, {}


class Telling(gymnasium.Env[Any, Any]):
    """Counts as `Counting` does, and has another observation, which sorts before the count."""

    def __init__(self) -> None:
        self._counting = Counting()
        self.observation_space = gymnasium.spaces.Dict(
            {"answer": Counting.observation_space, "count": Counting.observation_space}
        )
        self.action_space = self._counting.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, Any]]:
        """Starts an episode."""
        return self._told(self._counting.reset()[0]), {}

    def step(self, action: Any) -> tuple[dict[str, Observation], float, bool, bool, dict[str, Any]]:
        """Counts."""
        count, reward, terminated, truncated, infos = self._counting.step(action)
        return self._told(count), reward, terminated, truncated, infos

    def _told(self, count: Observation) -> dict[str, Observation]:
        return {"answer": count + 50, "count": count}


def tenth(seen: Observation) -> float:
    """Returns a tenth of the observation plus 0.25."""
    return float(seen[0]) / 10 + 0.25


def too_many(seen: Observation) -> list[float]:
    """Returns two actions where one is needed."""
    return [0.0, 1.0]


def nothing(seen: Observation) -> int:
    """Returns the first choice."""
    return 0


def falls_over(seen: Observation) -> float:
    """Raises an error."""
    raise RuntimeError("no idea\nat all")


class Remembering:
    """A policy with memory, whose action is the number of its calls in the episode."""

    def __init__(self) -> None:
        self._calls = 0

    def reset(self) -> None:
        """Starts an episode."""
        self._calls = 0

    def __call__(self, seen: Observation) -> float:
        """Acts."""
        self._calls += 1
        return float(self._calls)


def exits(seen: Observation) -> float:
    """Takes itself for a program."""
    sys.exit(3)


class Interrupts:
    """Raises KeyboardInterrupt when it is constructed."""

    def __init__(self) -> None:
        raise KeyboardInterrupt


class Exiting(Counting):
    """Ends the program in its second step."""

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Exits the program at the first step."""
        if self._count:
            sys.exit("its window was closed")
        return super().step(action)
