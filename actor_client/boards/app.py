"""Runs the actor of board games: makes the games, connects, plays, and closes."""

import random

import structlog

from actor_client.boards.catalog import make_game
from actor_client.boards.loop import BoardLoop
from actor_client.boards.positions import Position
from actor_client.boards.records import RecordFolder
from actor_client.boards.table import TEAMS, Table
from actor_client.connection.session import RunInfo
from actor_client.demos.players import PlayerDemos
from actor_client.endings import closing, run_command
from actor_client.envs.seeds import environment_seed
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.platform import stop_signals
from actor_client.policy.actions import PolicyUnusable
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.serving import served_metrics
from actor_client.settings.boards import BoardsSettings
from actor_client.starting import make_link, recorded_players, refuse_lockstep


def run_boards(settings: BoardsSettings) -> ExitCode:
    """Plays games for a learner until the run is over, the time is over, or a signal comes.

    Returns:
        The exit code. The error that ended the actor has been written to standard error.
    """
    return run_command(lambda: BoardsActor(settings).run(), settings)


class BoardsActor:
    """One run of the command.

    Args:
        settings: The user's settings.

    Raises:
        ActorError: There is no such game, or the script of opponents cannot be used.
    """

    def __init__(self, settings: BoardsSettings) -> None:
        self._settings = settings
        self._game = make_game(settings.game, settings.max_plies)
        self._records = None if settings.records is None else RecordFolder(settings.records, settings.records_every)
        self._script = None if settings.opponent is None else ScriptedOpponent(settings.opponent)
        self._heartbeat = Heartbeat(settings.heartbeat_file)
        self._link = make_link(settings, self._heartbeat, "OpenSpiel", opponent=settings.opponent)

    def run(self) -> None:
        """Connects, plays, and closes the session in any case.

        Raises:
            ActorError: The actor cannot continue.
        """
        settings, link = self._settings, self._link
        with stop_signals(link.request_stop), recorded_players(settings, link) as demos:
            link.start()
            if settings.max_wall_seconds is not None:
                link.stop_after(settings.max_wall_seconds)
            with closing(link), served_metrics(settings, link, self._heartbeat, settings.game):
                self._play(demos)

    def _play(self, demos: PlayerDemos | None) -> None:
        """Waits for the session, and plays until the link stops.

        Raises:
            ActorError: The learner refused the actor, or its policy cannot act.
        """
        settings, link = self._settings, self._link
        if settings.connect_timeout is None:
            structlog.get_logger().info(
                "connecting", address=settings.learner, game=settings.game, num_envs=settings.num_envs
            )
        run = link.open(settings.connect_timeout)
        refuse_lockstep(run, "games of two players do not support; remove rollcast.lockstep from the run file")
        table = Table(
            self._game,
            settings.num_envs,
            random_plies=settings.random_plies,
            random_numbers=random.Random(environment_seed(link.run_seed, link.actor_index, 0)),
            finished=self._finished,
        )
        try:
            BoardLoop(
                link,
                run.assignment,
                table,
                self._game.spec(self._behavior(run)),
                script=self._script,
                demos=demos,
                heartbeat=self._heartbeat,
            ).run()
        except PolicyUnusable as error:
            raise ActorError(ExitCode.POLICY_FAILED, str(error)) from None
        if link.error is not None:
            raise link.error

    def _finished(self, position: Position, first: int) -> None:
        """Writes the record of a game, if records are kept."""
        if self._records is None:
            return
        path = self._records.finished(position, (f"team {first}", f"team {TEAMS - 1 - first}"))
        if path is not None:
            structlog.get_logger().info("game_recorded", file=str(path), plies=position.plies)

    def _behavior(self, run: RunInfo) -> str:
        """Returns the behavior of both players: the user's choice, the run's only one, or the game's name.

        Raises:
            ActorError: The run has several behaviors, and none was chosen.
        """
        if self._settings.behavior is not None:
            return self._settings.behavior
        if len(run.behaviors) > 1:
            names = ", ".join(run.behaviors)
            raise ActorError(
                ExitCode.USAGE, f"run {run.run_id} has the behaviors {names}; choose one with --behavior NAME"
            )
        return run.behaviors[0] if run.behaviors else self._settings.game.partition("(")[0]
