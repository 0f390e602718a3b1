"""Docking: a craft with several discrete thrusters must stop at one buoy after another."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

STEPS = 200
_REACH = 0.2
_SLOW = 0.5
_DRAG = 0.9
_TURN = np.pi / 8.0


class Docking(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """A craft on a square; its return is about the number of buoys visited in 200 steps.

    Actions are ``MultiDiscrete([3, 5, 3])``: turn left, not, right; thrust back to forward in five grades; slide left,
    not, right. All three are needed to be quick, and what one does depends on the others. A buoy counts when the craft is
    near it and slow, and the next one appears; beside that coming nearer is rewarded as much as going away is punished.
    Observations: where the buoy is, the velocity, both as the craft sees them, and the heading.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-10.0, 10.0, (6,), np.float32)
        self.action_space = spaces.MultiDiscrete([3, 5, 3])
        self._position = np.zeros(2)
        self._velocity = np.zeros(2)
        self._buoy = np.zeros(2)
        self._heading = 0.0
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Places the craft at rest and a buoy elsewhere."""
        super().reset(seed=seed)
        self._position = self.np_random.uniform(-1.0, 1.0, 2)
        self._velocity = np.zeros(2)
        self._heading = float(self.np_random.uniform(-np.pi, np.pi))
        self._buoy = self.np_random.uniform(-1.0, 1.0, 2)
        self._steps = 0
        return self._view(), {}

    def step(self, action: NDArray[np.int64]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Turns, accelerates and moves; an episode is truncated after 200 steps."""
        turn, thrust, slide = (int(choice) for choice in action)
        before = self._distance()
        self._heading += _TURN * (turn - 1)
        ahead = np.array([np.cos(self._heading), np.sin(self._heading)])
        aside = np.array([-ahead[1], ahead[0]])
        self._velocity = _DRAG * self._velocity + 0.04 * (thrust - 2) * ahead + 0.02 * (slide - 1) * aside
        self._position = np.clip(self._position + self._velocity, -1.5, 1.5)
        reward = before - self._distance()
        if self._distance() < _REACH and float(np.hypot(*self._velocity)) < _SLOW * _REACH:
            reward += 1.0
            self._buoy = self.np_random.uniform(-1.0, 1.0, 2)
        self._steps += 1
        return self._view(), float(reward), False, self._steps >= STEPS, {}

    def _distance(self) -> float:
        return float(np.hypot(*(self._buoy - self._position)))

    def _view(self) -> NDArray[np.float32]:
        cosine, sine = np.cos(self._heading), np.sin(self._heading)
        turned = np.array([[cosine, sine], [-sine, cosine]])
        seen = np.concatenate((turned @ (self._buoy - self._position), 5.0 * (turned @ self._velocity)))
        return np.concatenate((seen, [cosine, sine])).astype(np.float32)
