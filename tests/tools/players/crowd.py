"""Crowds: the task is to find the side of most others in a buffer sensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rollcast.unity.communicator_objects import observation_pb2

from tests.tools.players.simulation import Floats, Outcome, Simulation, Whole, vector

MOST = 6
"""Entities that a list has room for."""


class Crowd(Simulation):
    """Agents that must say on which side most others are, or, if the goal says so, are not.

    Lists may be empty: then there is nothing to be earned.

    Args:
        agents: How many.
        length: Of an episode.
    """

    branches = (2,)

    def __init__(self, agents: int = 8, length: int = 20) -> None:
        super().__init__(agents)
        self._length = length
        self._others: list[Floats] = [np.zeros((0, 2))] * agents
        self._sides = np.ones(agents)

    def _begin(self, agent: int) -> None:
        """Draws a crowd."""
        count = self._generator.integers(MOST + 1)
        others = self._generator.uniform(0.2, 1.0, (count, 2)) * self._generator.choice([-1.0, 1.0], (count, 2))
        self._others[agent] = others
        self._sides[agent] = self._generator.choice([-1.0, 1.0])

    def observe(self, agent: int) -> Sequence[observation_pb2.ObservationProto]:
        """Returns the list, padded with zeros, and the goal."""
        return [entities(self._others[agent]), vector(self._sides[agent : agent + 1], "Side")]

    def advance(self, agents: Whole, continuous: Floats, discrete: Whole) -> Outcome:
        """Rewards answers and draws the next crowds."""
        where = np.array([self._others[agent][:, 0].sum() for agent in agents]) * self._sides[agents]
        rewards = np.sign(where) * (2.0 * discrete[:, 0] - 1.0)
        self._steps[agents] += 1
        for agent in agents:
            self._begin(int(agent))
        return Outcome(rewards, self._steps[agents] >= self._length)


def entities(values: Floats, most: int = MOST, name: str = "BufferSensor") -> observation_pb2.ObservationProto:
    """Returns an observation of a list [count, size] with room for more."""
    padded = np.zeros((most, values.shape[1]))
    padded[: len(values)] = values
    observation = observation_pb2.ObservationProto(name=name, shape=padded.shape, dimension_properties=(4, 1))
    observation.float_data.data.extend(padded.ravel().tolist())
    return observation
