"""Many games that take their plies together: one simulator of the rollout.

All games advance by one ply at a time, so that a policy runs once for all movers of a team. In each game one agent of
team 0 plays one of team 1; the one that moves first changes with each game.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import StatAggregation
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.boards.positions import Game, Position
from actor_client.boards.records import BoardGame
from actor_client.policy.actions import Actions
from actor_client.rollout.agents.interface import AgentRequest, AskingAgents, EndedAgents
from actor_client.rollout.agents.stepping import AgentReport

TEAMS = 2
FIRST_SCORE = "Environment/First Mover Score"
"""Statistic: 1 for a game that the first mover won, 0.5 for a draw, 0 otherwise."""
DRAWN = "Environment/Drawn Games"
"""Statistic: 1 for a drawn game, otherwise 0."""


class Table:
    """The games of a process; a `SteppedSimulator` of the rollout.

    Args:
        game: The game.
        games: Number of games.
        behavior: Name of the behavior of both players.
        random_plies: Random plies at the start of each game, which no agent chooses.
        random_numbers: Draws them.
        finished: Called with each game that ended, and the team that moved first.

    Attributes:
        worker: Always 0: a process has one table.
        is_running: Its agents may report.
        reset_due: Its next exchange is answered with a reset.
    """

    worker = 0

    def __init__(
        self,
        game: Game,
        games: int,
        behavior: str,
        *,
        random_plies: int = 0,
        random_numbers: random.Random | None = None,
        finished: Callable[[Position, int], None] | None = None,
    ) -> None:
        self.is_running = False
        self.reset_due = False
        self._game = game
        self._spec = game.spec(behavior)
        self._random_plies = random_plies
        self._random = random_numbers or random.Random()
        self._finished = finished
        self._positions: list[Position] = []
        self._first = [index % TEAMS for index in range(games)]
        self._movers: list[list[int]] = [[], []]
        self._chosen: dict[int, list[int]] | None = None
        self._begins = True

    @property
    def behaviors(self) -> list[tuple[BehaviorSpec, int, int]]:
        """Spec, team and number of agents of both teams."""
        return [(self._spec, team, len(self._first)) for team in range(TEAMS)]

    @property
    def is_ready(self) -> bool:
        """True if it can continue: all movers have actions, or it is about to be reset."""
        return self._begins or self._chosen is not None

    def act(self, chosen: dict[int, list[int]]) -> None:
        """Takes the moves of the next ply: one number for each asking agent, by team."""
        self._chosen = chosen

    def restart(self) -> None:
        """Notes that all games are to begin again in place of the next ply."""
        self._begins, self.reset_due, self._chosen = True, False, None

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Notes a reset if the learner asks for one."""
        if self.is_running:
            self.reset_due |= assignment.reset == policy_pb2.RESET_MODE_NOW

    def advance(self) -> list[AgentReport]:
        """Plays one ply in all games, or begins them; returns both teams' agents."""
        over = [] if self._begins else self._play()
        ended = [self._ended(team, over) for team in range(TEAMS)]
        if self._begins:
            self._positions = [self._start() for _ in self._first]
            self.is_running, self._begins = True, False
        for index in over:
            if self._finished is not None:
                self._finished(self._positions[index], self._first[index])
            self._first[index] = TEAMS - 1 - self._first[index]
            self._positions[index] = self._start()
        self._movers = [[], []]
        for index, position in enumerate(self._positions):
            self._movers[self._first[index] ^ position.mover].append(index)
        asking = [self._asking(team) for team in range(TEAMS)]
        exchange = Exchange(self, {self._behavior_id(team): team for team in range(TEAMS) if len(asking[team].ids)})
        reports = []
        for team, (agents, results, games, stats) in enumerate(ended):
            behavior_id = self._behavior_id(team)
            request = AgentRequest(exchange, behavior_id, asking[team], agents, results=results, games=games)
            reports.append(AgentReport(self._spec, team, request, stats))
        return reports

    def _behavior_id(self, team: int) -> str:
        return f"{self._spec.name}?team={team}"

    def _play(self) -> list[int]:
        """Plays the chosen moves; returns the games that ended."""
        chosen, self._chosen = self._chosen or {}, None
        for team, numbers in chosen.items():
            for index, number in zip(self._movers[team], numbers, strict=True):
                self._positions[index].play(number)
        return [index for index, position in enumerate(self._positions) if position.is_over]

    def _start(self) -> Position:
        """Returns the start of a game, after the random plies."""
        while True:
            position = self._game.start()
            for _ in range(self._random_plies):
                if not position.is_over:
                    position.play(int(self._random.choice(position.legal)))
            if not position.is_over:
                return position

    def _asking(self, team: int) -> AskingAgents:
        movers = self._movers[team]
        positions = [self._positions[index] for index in movers]
        zeros = np.zeros(len(movers), np.float32)
        return AskingAgents(
            np.array(movers, np.int64) * TEAMS + team,
            [self._game.observe(positions, [position.mover for position in positions])],
            self._game.masks(positions),
            zeros,
            np.zeros(len(movers), np.int64),
            zeros,
        )

    def _ended(
        self, team: int, over: Sequence[int]
    ) -> tuple[EndedAgents, NDArray[np.int8], list[BoardGame], list[tuple[str, float, StatAggregation]]]:
        """Returns the agents of a team whose games ended, their results, their games, and statistics."""
        positions = [self._positions[index] for index in over]
        seats = [team ^ self._first[index] for index in over]
        returns = [position.returns or (0.0, 0.0) for position in positions]
        rewards = np.array([each[seat] for each, seat in zip(returns, seats, strict=True)], np.float32)
        count = len(over)
        ended = EndedAgents(
            np.array(over, np.int64) * TEAMS + team,
            [self._game.observe(positions, seats)],
            np.zeros(count, np.bool_),
            rewards,
            np.zeros(count, np.int64),
            np.zeros(count, np.float32),
        )
        average = StatAggregation.AVERAGE
        stats = [(FIRST_SCORE, (first + 1) / 2, average) for first, _ in returns]
        stats += [(DRAWN, float(first == 0), average) for first, _ in returns]
        games = [BoardGame(position, self._first[index]) for index, position in zip(over, positions, strict=True)]
        return ended, np.sign(rewards).astype(np.int8), games, stats


class Exchange:
    """One ply of a table, answered once both teams' movers have actions.

    Args:
        table: The table.
        asking: The teams that are to move, by behavior id.

    Attributes:
        simulator: The table.
    """

    __slots__ = ("_asking", "_chosen", "simulator")

    def __init__(self, table: Table, asking: dict[str, int]) -> None:
        self.simulator = table
        self._asking = asking
        self._chosen: dict[int, list[int]] = {}

    def act(self, behavior_id: str, actions: Actions) -> bool:
        """Adds the moves of one team; returns whether all moves are present."""
        assert actions.discrete is not None  # noqa: S101 - for the type checker
        self._chosen[self._asking.pop(behavior_id)] = actions.discrete[:, 0].tolist()
        return not self._asking

    def answer(self) -> None:
        """Lets the table play these moves."""
        self.simulator.act(self._chosen)

    def answer_reset(self) -> None:
        """Begins all games again; moves chosen in the meantime are dropped."""
        self.simulator.restart()
