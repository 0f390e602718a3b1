"""The interface of scripted agents' observations, actions and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.unity.communicator_objects import behavior_pb2, observation_pb2

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


class Outcome(NamedTuple):
    """The outcome of the actions of k agents.

    Attributes:
        rewards: [k].
        ended: Bool [k]; agents whose episode ended by itself.
    """

    rewards: Floats
    ended: NDArray[np.bool_]


class Simulation:
    """Agents of one behavior.

    Attributes:
        agents: How many.
        continuous: Axes of an action.
        branches: Choices of each branch of an action.
        step_limit: Decisions after which an episode is interrupted; None for none.
    """

    continuous = 0
    branches: tuple[int, ...] = ()
    step_limit: int | None = None

    def __init__(self, agents: int) -> None:
        self.agents = agents
        self._generator = np.random.default_rng(0)
        self._steps = np.zeros(agents, np.int64)

    def begin(self, agent: int, generator: np.random.Generator) -> None:
        """Starts an episode of an agent."""
        self._generator = generator
        self._steps[agent] = 0
        self._begin(agent)

    def _begin(self, agent: int) -> None:
        """Draws what an agent sees first."""
        raise NotImplementedError

    def observe(self, agent: int) -> Sequence[observation_pb2.ObservationProto]:
        """Returns what an agent sees."""
        raise NotImplementedError

    def forbidden(self, agent: int) -> Sequence[bool]:
        """Returns what an agent may not choose, all branches side by side; empty forbids nothing."""
        return ()

    def advance(self, agents: Whole, continuous: Floats, discrete: Whole) -> Outcome:
        """Applies the agents' actions, [k, continuous] and [k, branches]."""
        raise NotImplementedError


def brain(behavior_id: str, continuous: int = 0, branches: Sequence[int] = ()) -> behavior_pb2.BrainParametersProto:
    """Returns what a player tells of a behavior: axes and choices of its actions."""
    spec = behavior_pb2.ActionSpecProto(
        num_continuous_actions=continuous, num_discrete_actions=len(branches), discrete_branch_sizes=branches
    )
    return behavior_pb2.BrainParametersProto(brain_name=behavior_id, is_training=True, action_spec=spec)


def vector(values: Floats, name: str = "VectorSensor", goal: bool = False) -> observation_pb2.ObservationProto:
    """Returns an observation of rank 1."""
    observation = observation_pb2.ObservationProto(name=name)
    observation.shape.append(len(values))
    observation.dimension_properties.append(1)
    observation.float_data.data.extend(values.tolist())
    if goal:
        observation.observation_type = observation_pb2.GOAL_SIGNAL
    return observation
