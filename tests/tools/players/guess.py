"""Guessing: every decision has a new question whose answer is in the observation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rollcast.unity.communicator_objects import observation_pb2

from tests.tools.players.simulation import Floats, Outcome, Simulation, Whole, vector

SIZE = 4


class Guess(Simulation):
    """Agents that must name the largest of some numbers and repeat one on each axis.

    Of each branch one choice is forbidden, another one at each decision, where there are three or more.

    Args:
        agents: How many.
        continuous: Axes, at most 4.
        branches: Choices of each branch, at most 4 each.
        length: Of an episode, the last step of which ends it.
        step_limit: Decisions after which it is interrupted.
        goal: The numbers come as a goal signal, beside a vector of zeros.
    """

    def __init__(
        self,
        agents: int = 8,
        continuous: int = 2,
        branches: tuple[int, ...] = (3, 2),
        length: int = 20,
        step_limit: int | None = None,
        *,
        goal: bool = False,
    ) -> None:
        super().__init__(agents)
        self.continuous = continuous
        self.branches = branches
        self.step_limit = step_limit
        self._length = length
        self._goal = goal
        self._numbers = np.zeros((agents, SIZE))

    def _begin(self, agent: int) -> None:
        """Draws a question."""
        self._numbers[agent] = self._generator.uniform(-1.0, 1.0, SIZE)

    def observe(self, agent: int) -> Sequence[observation_pb2.ObservationProto]:
        """Returns the numbers."""
        numbers = vector(self._numbers[agent], "Numbers", goal=self._goal)
        return [vector(np.zeros(1), "Nothing"), numbers] if self._goal else [numbers]

    def forbidden(self, agent: int) -> Sequence[bool]:
        """Returns a mask that forbids one choice of each branch with three or more."""
        flags: list[bool] = []
        for size in self.branches:
            flags += [size > 2 and choice == self._steps[agent] % size for choice in range(size)]
        return flags

    def advance(self, agents: Whole, continuous: Floats, discrete: Whole) -> Outcome:
        """Rewards answers."""
        numbers = self._numbers[agents]
        rewards = -np.abs(numbers[:, : self.continuous] - continuous).sum(axis=1)
        for branch, size in enumerate(self.branches):
            rewards += numbers[:, :size][np.arange(len(agents)), discrete[:, branch]]
        self._steps[agents] += 1
        for agent in agents:
            self._begin(int(agent))
        return Outcome(rewards, self._steps[agents] >= self._length)
