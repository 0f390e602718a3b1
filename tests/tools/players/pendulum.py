"""Pendulum with the constants and the 200-step limit of Gymnasium's Pendulum-v1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from rollcast.unity.communicator_objects import observation_pb2

from tests.tools.players.simulation import Floats, Outcome, Simulation, Whole, vector

GRAVITY, MASS, LENGTH, TAU_SECONDS = 10.0, 1.0, 1.0, 0.05
MOST_TORQUE: Final = 2.0
MOST_SPEED: Final = 8.0


class Pendulum(Simulation):
    """Agents that each swing up a pendulum with one axis; the reward is the negative cost.

    Args:
        agents: How many.
    """

    continuous = 1
    step_limit = 200

    def __init__(self, agents: int = 8) -> None:
        super().__init__(agents)
        self._angle, self._speed = np.zeros(agents), np.zeros(agents)

    def _begin(self, agent: int) -> None:
        """Places the pendulum at a random angle."""
        self._angle[agent] = self._generator.uniform(-np.pi, np.pi)
        self._speed[agent] = self._generator.uniform(-1.0, 1.0)

    def observe(self, agent: int) -> Sequence[observation_pb2.ObservationProto]:
        """Returns cosine, sine and speed."""
        angle = self._angle[agent]
        return [vector(np.array([np.cos(angle), np.sin(angle), self._speed[agent]]), "VectorSensor_size3")]

    def advance(self, agents: Whole, continuous: Floats, discrete: Whole) -> Outcome:
        """Applies each agent's share of the largest torque."""
        angle, speed, torque = self._angle[agents], self._speed[agents], MOST_TORQUE * continuous[:, 0]
        from_top = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = from_top**2 + 0.1 * speed**2 + 0.001 * torque**2
        pull = 1.5 * GRAVITY / LENGTH * np.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        speed = np.clip(speed + pull * TAU_SECONDS, -MOST_SPEED, MOST_SPEED)
        self._angle[agents], self._speed[agents] = angle + speed * TAU_SECONDS, speed
        return Outcome(-cost, np.zeros(len(agents), bool))
