"""Sumo: two players on a round mat, of which the one that is pushed off it loses. Zero-sum, two teams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from tests.tools.players.replies import read_actions
from tests.tools.players.simulation import Floats, brain, vector
from tests.tools.players.task import EpisodeSink, nobody

TEAMS = 2
MAT = 1.0
"""Radius of the mat."""
SIZE = 0.15
"""Radius of a player."""
THRUST = 0.03
DRAG = 0.9
BOUNCE = 1.5
LIMIT = 100
"""Decisions after which a game ends."""


class Mat:
    """Games between two players.

    At each decision a player accelerates by its action, a vector of length 1 at most, and slides on; when two touch, they
    bounce off each other. A player whose center leaves the mat loses: -1, and the other one gets 1. After `LIMIT`
    decisions, or if both leave the mat at once, the one closer to the middle wins. A player sees its position and
    velocity, and those of the other one relative to its own; team 1 sees and acts turned by half a turn, so that the
    seats are alike.

    Args:
        games: How many.
    """

    def __init__(self, games: int) -> None:
        self.games = games
        self.lengths = np.zeros(games, np.int64)
        self._generator = np.random.default_rng(0)
        self._at = np.zeros((games, TEAMS, 2))
        self._speed = np.zeros((games, TEAMS, 2))

    def reset(self, seed: int | None = None) -> None:
        """Starts all games again."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        for game in range(self.games):
            self.begin(game)

    def begin(self, game: int) -> None:
        """Starts a game."""
        angle = self._generator.uniform(0.0, 2 * np.pi)
        place = 0.5 * np.array([np.cos(angle), np.sin(angle)])
        self._at[game] = [place, -place]
        self._speed[game] = 0.0
        self.lengths[game] = 0

    def observe(self, team: int) -> Floats:
        """Returns what the players of a team see, ``[games, 8]``."""
        own, other = self._at[:, team], self._at[:, 1 - team]
        speed, others = self._speed[:, team], self._speed[:, 1 - team]
        return np.asarray(_turn(team) * np.concatenate([own, 10 * speed, other - own, 10 * (others - speed)], axis=1))

    def step(self, pushes: Sequence[Floats]) -> dict[int, float]:
        """Applies the actions of both teams, ``[games, 2]`` each; returns the reward of team 0 in each game that ended.

        Begin these games again.
        """
        turned = np.stack([_turn(team) * each for team, each in enumerate(pushes)], axis=1)
        self._slide(turned / np.maximum(np.linalg.norm(turned, axis=2, keepdims=True), 1.0))
        self.lengths += 1
        distances = np.linalg.norm(self._at, axis=2)
        ended = np.flatnonzero((distances.max(1) > MAT) | (self.lengths >= LIMIT))
        return {int(game): float(np.sign(distances[game, 1] - distances[game, 0])) for game in ended}

    def _slide(self, pushes: Floats) -> None:
        self._speed = DRAG * self._speed + THRUST * pushes
        self._at = self._at + self._speed
        apart = self._at[:, 1] - self._at[:, 0]
        distance = np.maximum(np.linalg.norm(apart, axis=1), 1e-9)
        normal = apart / distance[:, None]
        closing = np.einsum("gi,gi->g", self._speed[:, 0] - self._speed[:, 1], normal)
        touching = distance < 2 * SIZE
        hit = np.where(touching & (closing > 0), BOUNCE * closing / 2 + THRUST / 4, 0.0)[:, None] * normal
        gap = np.where(touching, SIZE - distance / 2, 0.0)[:, None] * normal
        self._speed[:, 0] -= hit
        self._speed[:, 1] += hit
        self._at[:, 0] -= gap
        self._at[:, 1] += gap


class Duel:
    """A `Task` of games between an agent of team 0 and one of team 1; see `Mat`.

    Args:
        games: How many.
        on_episode: Takes the results.
        names: Name of the behavior of each team.
    """

    def __init__(self, games: int, on_episode: EpisodeSink = nobody, names: tuple[str, str] = ("Duel", "Duel")) -> None:
        self.decisions = 0
        self._ids = [f"{name}?team={team}" for team, name in enumerate(names)]
        self._mat = Mat(games)
        self._on_episode = on_episode
        self._told = False
        self._ended: list[tuple[int, agent_pb2.AgentInfoProto]] = []

    def reset(self, seed: int | None = None) -> None:
        """Starts all games again."""
        self._ended.clear()
        self._mat.reset(seed)

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes the agents that ended, then all."""
        for team, behavior_id in enumerate(self._ids):
            if not self._told:
                output.rl_initialization_output.brain_parameters.append(brain(behavior_id, 2))
            infos = output.rl_output.agentInfos[behavior_id].value
            infos.extend(info for each, info in self._ended if each == team)
            infos.extend(self._infos(team))
        self._told = True
        self._ended.clear()

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Applies the actions of both teams."""
        masks: list[list[bool]] = [[] for _ in range(self._mat.games)]
        ended = self._mat.step([read_actions(reply, each, masks, 2, ())[0] for each in self._ids])
        self.decisions += TEAMS * self._mat.games
        infos = [self._infos(team) for team in range(TEAMS)] if ended else []
        for game, won in ended.items():
            for team, reward in enumerate((won, -won)):
                info = infos[team][game]
                info.reward, info.done = reward, True
                self._ended.append((team, info))
                self._on_episode(self._ids[team], self.decisions, reward, int(self._mat.lengths[game]))
            self._mat.begin(game)

    def _infos(self, team: int) -> list[agent_pb2.AgentInfoProto]:
        return [
            agent_pb2.AgentInfoProto(id=TEAMS * game + team, observations=[vector(numbers, "Mat")])
            for game, numbers in enumerate(self._mat.observe(team))
        ]


def _turn(team: int) -> float:
    return 1.0 - 2.0 * team
