"""The adapter of board games: the games, their records, and their behavior."""

import random
from collections.abc import Mapping

import structlog

from actor_client.adapters import CHOOSE, AgentAdapter
from actor_client.boards.catalog import make_game
from actor_client.boards.positions import Position
from actor_client.boards.records import RecordFolder
from actor_client.boards.table import TEAMS, Table
from actor_client.connection.session import RunInfo
from actor_client.endings import Actor
from actor_client.envs.seeds import environment_seed
from actor_client.exits import ExitCode
from actor_client.running import behavior_of_run, run_actor
from actor_client.settings.boards import BoardsSettings
from actor_client.settings.loading import load


def run_boards(flags: Mapping[str, object]) -> ExitCode:
    """Plays games for a learner; see `run_actor`."""
    return run_actor(BoardsAdapter, load(BoardsSettings, flags))


class BoardsAdapter(AgentAdapter):
    """Plays board games of two players.

    Args:
        settings: The user's settings.

    Raises:
        ActorError: There is no such game, or the script of opponents cannot be used.
    """

    simulator = "OpenSpiel"
    lockstep_fault = "games of two players do not support; remove rollcast.lockstep from the run file"

    def __init__(self, settings: BoardsSettings) -> None:
        self._settings = settings
        self._game = make_game(settings.game, settings.max_plies)
        self._records = None if settings.records is None else RecordFolder(settings.records, settings.records_every)
        super().__init__(settings, settings.game, settings.opponent)
        self.connecting = {"game": settings.game, "num_envs": settings.num_envs}

    def simulators(self, actor: Actor, run: RunInfo) -> list[Table]:
        """Returns the table with all games."""
        settings, link = self._settings, actor.link
        own = settings.game.partition("(")[0]
        return [
            Table(
                self._game,
                settings.num_envs,
                settings.behavior or behavior_of_run(run, own, CHOOSE),
                random_plies=settings.random_plies,
                random_numbers=random.Random(environment_seed(link.run_seed, link.actor_index, 0)),
                finished=self._finished,
            )
        ]

    def _finished(self, position: Position, first: int) -> None:
        """Writes the record of a game, if records are kept."""
        if self._records is None:
            return
        path = self._records.finished(position, (f"team {first}", f"team {TEAMS - 1 - first}"))
        if path is not None:
            structlog.get_logger().info("game_recorded", file=str(path), plies=position.plies)
