"""The plate: one agent of a group must leave the game so that the others can win it.

Rules. Three agents stand on a line of seven places, which begin somewhere between places 2 and 4. An action is one step
to the left, none, or one to the right. Place 0 has a plate, place 6 is behind a gate. An agent that steps on the plate
leaves the game: its episode ends. The first one opens the gate for the rest of the group's episode. Each agent that
reaches place 6 leaves the game, too, and the group is rewarded with 1. The episode of the group ends with that of its
last agent, or is interrupted after 40 steps. At best, one agent opens the gate and two win: the score is 2. The agent
on the plate never sees a reward, so one that learns only from rewards of its own episode learns to stay away from it.

Groups that act at random reach 1.0 on average, and 0.5 with a limit of 16 steps.
"""

from __future__ import annotations

import numpy as np
from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from tests.tools.players.replies import read_actions
from tests.tools.players.simulation import brain, vector
from tests.tools.players.task import EpisodeSink, nobody

SIZE = 3
"""Agents of a group."""
PLACES = 7
STEPS = 40
BRIEF_STEPS = 16
"""Limit at which luck seldom wins; a group that knows the way needs at most 6."""
BEHAVIOR = "Plate?team=0"


class _Group:
    """One group; agents that left the game are None.

    Args:
        number: Of the group, from 1.
        generator: Draws the places at the start.
    """

    def __init__(self, number: int, generator: np.random.Generator) -> None:
        self.number = number
        self.places: list[int | None] = [int(place) for place in generator.integers(2, 5, SIZE)]
        self.is_open = False
        self.steps = 0
        self.score = 0.0
        self.reward = 0.0

    def info(self, member: int, *, done: bool = False, interrupted: bool = False) -> agent_pb2.AgentInfoProto:
        """Returns what an agent sees: its place, the gate, and for each mate whether it is there and where."""
        seen = np.zeros(PLACES + 1 + 2 * (SIZE - 1))
        place = self.places[member]
        if place is not None:
            seen[place] = 1.0
        seen[PLACES] = float(self.is_open)
        for slot, mate in enumerate(other for other in range(SIZE) if other != member):
            where = self.places[mate]
            if where is not None:
                seen[PLACES + 1 + 2 * slot : PLACES + 3 + 2 * slot] = 1.0, where / (PLACES - 1)
        return agent_pb2.AgentInfoProto(
            id=self.number * SIZE + member,
            group_id=self.number,
            group_reward=self.reward,
            done=done,
            max_step_reached=interrupted,
            observations=[vector(seen)],
        )


class Plate:
    """The task of some groups; see the module for its rules.

    Args:
        agents: How many; a third of them are groups, at least one.
        on_episode: Takes the score of each group's episode.
        steps: Limit of an episode.
    """

    def __init__(self, agents: int, on_episode: EpisodeSink = nobody, steps: int = STEPS) -> None:
        self.decisions = 0
        self._steps = steps
        self._on_episode = on_episode
        self._generator = np.random.default_rng(0)
        self._groups = [_Group(1 + number, self._generator) for number in range(max(1, agents // SIZE))]
        self._ended: list[agent_pb2.AgentInfoProto] = []
        self._asking: list[tuple[int, int]] = []
        self._told = False

    def reset(self, seed: int | None = None) -> None:
        """Starts all episodes again."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._ended.clear()
        self._groups = [_Group(group.number, self._generator) for group in self._groups]

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes the agents that ended, then those that ask."""
        if not self._told:
            output.rl_initialization_output.brain_parameters.append(brain(BEHAVIOR, branches=[3]))
            self._told = True
        infos = output.rl_output.agentInfos[BEHAVIOR].value
        infos.extend(self._ended)
        self._ended.clear()
        self._asking = [
            (number, member)
            for number, group in enumerate(self._groups)
            for member in range(SIZE)
            if group.places[member] is not None
        ]
        infos.extend(self._groups[number].info(member) for number, member in self._asking)

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Moves the agents that asked."""
        _, actions = read_actions(reply, BEHAVIOR, [()] * len(self._asking), 0, (3,))
        moves: dict[int, dict[int, int]] = {}
        for (number, member), action in zip(self._asking, actions[:, 0].tolist(), strict=True):
            moves.setdefault(number, {})[member] = action - 1
        self.decisions += len(self._asking)
        for number, move in moves.items():
            self._step(number, move)

    def _step(self, number: int, moves: dict[int, int]) -> None:
        group = self._groups[number]
        group.steps += 1
        group.reward = 0.0
        was_open = group.is_open
        gone = []
        for member, move in moves.items():
            place = group.places[member] or 0
            place = min(max(place + move, 0), PLACES - 1 if was_open else PLACES - 2)
            group.places[member] = place
            if place == 0:
                group.is_open = True
                gone.append(member)
            elif place == PLACES - 1:
                group.reward += 1.0
                gone.append(member)
        group.score += group.reward
        is_late = group.steps >= self._steps
        self._ended.extend(
            group.info(member, done=True, interrupted=member not in gone)
            for member in moves
            if member in gone or is_late
        )
        for member in gone:
            group.places[member] = None
        if is_late or all(place is None for place in group.places):
            self._on_episode(BEHAVIOR, self.decisions, group.score, group.steps)
            self._groups[number] = _Group(group.number, self._generator)
