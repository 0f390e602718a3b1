"""A simulation with agent ids, ends, questions and groups, as in a Unity scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from tests.tools.players.replies import read_actions
from tests.tools.players.simulation import Outcome, Simulation, Whole, brain
from tests.tools.players.task import EpisodeSink, nobody


@dataclass(frozen=True, slots=True)
class Habits:
    """The behavior of agents on the wire, independent of their simulation.

    Attributes:
        first_id: Of the agents.
        fresh_ids: Agents are destroyed at the end of their episode, and others, with new ids, come.
        periods: Agent n asks at every so many-th message only (1 + n % periods).
        group_size: So many agents each share a group; 0 for none.
        first_group: Id of the first group.
    """

    first_id: int = 0
    fresh_ids: bool = False
    periods: int = 1
    group_size: int = 0
    first_group: int = 1


REGULAR = Habits()


class Arena:
    """A `Task` of the agents of one simulation.

    Args:
        simulation: What they see, do and earn.
        behavior_id: Of the agents, `Name?team=n`.
        on_episode: Takes the results.
        habits: Of the agents.
    """

    def __init__(
        self, simulation: Simulation, behavior_id: str, on_episode: EpisodeSink = nobody, habits: Habits = REGULAR
    ) -> None:
        count = simulation.agents
        self.decisions = 0
        self._simulation = simulation
        self._id = behavior_id
        self._on_episode = on_episode
        self._habits = habits
        self._told = False
        self._generator = np.random.default_rng(0)
        self._ids = np.arange(count) + habits.first_id
        self._next_id = habits.first_id + count
        size, first = habits.group_size, habits.first_group
        self._groups = first + np.arange(count) // size if size else np.zeros(count, np.int64)
        self._lengths, self._totals = np.zeros(count, np.int64), np.zeros(count)
        self._rewards, self._group_rewards = np.zeros(count), np.zeros(count)
        self._is_there = np.ones(count, bool)
        self._ended: list[agent_pb2.AgentInfoProto] = []
        self._asking: Whole = np.zeros(0, np.int64)
        self._messages = 0

    def reset(self, seed: int | None = None) -> None:
        """Starts all episodes again."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._ended.clear()
        for agent in range(self._simulation.agents):
            self._begin(agent)

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes the agents that ended, then those that ask."""
        periods = 1 + np.arange(self._simulation.agents) % self._habits.periods
        self._asking = np.flatnonzero(self._is_there & (self._messages % periods == 0))
        self._messages += 1
        if not self._told:
            output.rl_initialization_output.brain_parameters.append(
                brain(self._id, self._simulation.continuous, self._simulation.branches)
            )
            self._told = True
        infos = output.rl_output.agentInfos[self._id].value
        infos.extend(self._ended)
        self._ended.clear()
        infos.extend(self._info(int(agent)) for agent in self._asking)
        for earned in (self._rewards, self._group_rewards):
            earned[self._asking] = 0.0

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Applies the actions of the agents that asked."""
        simulation, asking = self._simulation, self._asking
        masks = [simulation.forbidden(int(agent)) for agent in asking]
        actions = read_actions(reply, self._id, masks, simulation.continuous, simulation.branches)
        if not len(asking):
            return
        self._earn(simulation.advance(asking, *actions))

    def _earn(self, outcome: Outcome) -> None:
        asking, limit = self._asking, self._simulation.step_limit
        self.decisions += len(asking)
        self._lengths[asking] += 1
        self._rewards[asking] += outcome.rewards
        self._totals[asking] += outcome.rewards
        for group in np.unique(self._groups[asking]):
            if group:
                self._group_rewards[self._groups == group] += outcome.rewards[self._groups[asking] == group].sum()
        for agent, ended in zip(asking.tolist(), outcome.ended, strict=True):
            if ended or (limit is not None and self._lengths[agent] >= limit):
                self._end(agent, interrupted=not ended)

    def _begin(self, agent: int) -> None:
        self._simulation.begin(agent, self._generator)
        self._is_there[agent] = True
        for values in (self._lengths, self._totals, self._rewards, self._group_rewards):
            values[agent] = 0

    def _end(self, agent: int, interrupted: bool) -> None:
        info = self._info(agent)
        info.done, info.max_step_reached = True, interrupted
        del info.action_mask[:]
        self._ended.append(info)
        self._on_episode(self._id, self.decisions, float(self._totals[agent]), int(self._lengths[agent]))
        if self._habits.fresh_ids:
            self._ids[agent] = self._next_id
            self._next_id += 1
        mates = self._groups == self._groups[agent]
        if self._groups[agent] == 0:
            self._begin(agent)
            return
        self._is_there[agent] = False  # until all of its group have ended
        if not self._is_there[mates].any():
            for mate in np.flatnonzero(mates):
                self._begin(int(mate))

    def _info(self, agent: int) -> agent_pb2.AgentInfoProto:
        return agent_pb2.AgentInfoProto(
            id=int(self._ids[agent]),
            reward=self._rewards[agent],
            group_id=int(self._groups[agent]),
            group_reward=self._group_rewards[agent],
            action_mask=self._simulation.forbidden(agent),
            observations=self._simulation.observe(agent),
        )
