"""CartPole (Barto, Sutton and Anderson 1983) with the constants and the 500-step limit of Gymnasium's CartPole-v1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from rollcast.unity.communicator_objects import observation_pb2

from tests.tools.players.simulation import Floats, Outcome, Simulation, Whole, vector

GRAVITY, MASS_CART, MASS_POLE, HALF_LENGTH, FORCE, TAU_SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
ANGLE_LIMIT: Final = 12 * 2 * np.pi / 360
POSITION_LIMIT: Final = 2.4


class CartPole(Simulation):
    """Agents that each balance a pole, with two choices and a reward of 1 a step.

    Args:
        agents: How many.
        sensor: Name of the observation.
    """

    branches = (2,)
    step_limit = 500

    def __init__(self, agents: int = 8, sensor: str = "VectorSensor_size4") -> None:
        super().__init__(agents)
        self._sensor = sensor
        self._state = np.zeros((agents, 4))

    def _begin(self, agent: int) -> None:
        """Places the pole almost upright."""
        self._state[agent] = self._generator.uniform(-0.05, 0.05, 4)

    def observe(self, agent: int) -> Sequence[observation_pb2.ObservationProto]:
        """Returns position, velocity, angle and angular velocity."""
        return [vector(self._state[agent], self._sensor)]

    def advance(self, agents: Whole, continuous: Floats, discrete: Whole) -> Outcome:
        """Pushes each cart to the left or to the right."""
        state = advance(self._state[agents], discrete[:, 0])
        self._state[agents] = state
        fell = (np.abs(state[:, 0]) > POSITION_LIMIT) | (np.abs(state[:, 2]) > ANGLE_LIMIT)
        return Outcome(np.ones(len(agents)), fell)


def advance(state: Floats, pushes: Whole) -> Floats:
    """Returns the states after one step of Euler's method.

    Args:
        state: [N, 4]: position, velocity, angle, angular velocity.
        pushes: [N], 1 to push the cart to the right and 0 to push it to the left.
    """
    _, x_dot, theta, theta_dot = state.T
    force = np.where(pushes > 0, FORCE, -FORCE)
    cos, sin = np.cos(theta), np.sin(theta)
    total, pole_moment = MASS_CART + MASS_POLE, MASS_POLE * HALF_LENGTH
    push = (force + pole_moment * theta_dot**2 * sin) / total
    theta_acc = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - MASS_POLE * cos**2 / total))
    x_acc = push - pole_moment * theta_acc * cos / total
    return state + TAU_SECONDS * np.stack([x_dot, x_acc, theta_dot, theta_acc], axis=1)
