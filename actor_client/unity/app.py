"""Runs the Unity actor: opens the session, starts the players, steps, and closes.

The ports are already open (`actor_client.unity.start`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from actor_client.connection.session import RunInfo
from actor_client.counts import AgentCounts
from actor_client.demos.players import PlayerDemos
from actor_client.endings import closing, run_command
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.platform import stop_signals
from actor_client.policy.actions import PolicyUnusable
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.serving import served_metrics
from actor_client.settings.commands import UnitySettings
from actor_client.starting import make_link, refuse_lockstep
from actor_client.unity.channels.plugins import ChannelPlugin, load_plugins
from actor_client.unity.channels.side_channels import SideChannels
from actor_client.unity.conversation import Conversation
from actor_client.unity.gateway import Gateway
from actor_client.unity.mailbox import Mailbox
from actor_client.unity.players.launch import find_build
from actor_client.unity.players.process import PlayerProcess, end_all
from actor_client.unity.players.rules import PlayerRules, log_place, resolve_rules
from actor_client.unity.players.supervisor import PlayerSupervisor
from actor_client.unity.server import Door

if TYPE_CHECKING:
    from actor_client.unity.metrics import PlayerMetrics

LEAVE_SECONDS: Final = 4.0
"""Seconds for players to quit when told; the sum with the next limit is below the stop time-out of a container."""
TERM_SECONDS: Final = 2.0
EDITOR: Final = "editor"
"""Name of the environment in metrics when no build is started."""
_PLAY: Final = (
    "press Play in the Unity editor; whenever it has stopped, press Play again: the run continues until Ctrl-C"
)
_PLAY_AGAIN: Final = "the run continues: press Play again, or end it with Ctrl-C"
_ADVICE: Final = MappingProxyType({"UNKNOWN_BEHAVIOR": "or change the Behavior Name in Unity (Behavior Parameters)"})


def run_unity(
    settings: UnitySettings, doors: Sequence[Door], stops: Sequence[str], on_error: Callable[[ActorError], bool]
) -> ExitCode:
    """Serves players for a learner until the run is over, the time is over, or a signal comes.

    Args:
        settings: The user's settings.
        doors: The open ports.
        stops: Holds the name of a signal that arrived before this function had its handler.
        on_error: See `run_command`.

    Returns:
        The exit code. The error that ended the actor has been reported.
    """
    return run_command(lambda: UnityActor(settings, doors, stops).run(), settings, on_error)


class UnityActor:
    """One run of the command.

    Args:
        settings: The user's settings.
        doors: The open ports.
        stops: Holds the name of a signal that arrived before this object had its handler.

    Raises:
        ActorError: The build, a plug-in, the script of opponents or the heartbeat file cannot be used.
    """

    def __init__(self, settings: UnitySettings, doors: Sequence[Door], stops: Sequence[str] = ()) -> None:
        self._settings = settings
        self._stops = stops
        self._mailbox = Mailbox()
        again = _PLAY_AGAIN if settings.env is None else ""
        self._conversations = tuple(
            Conversation(worker, self._mailbox, again=again) for worker in range(settings.num_envs)
        )
        self._doors = doors
        self._executable = None if settings.env is None else find_build(settings.env)
        self._plugins = load_plugins(settings.side_channel)
        self._script = None if settings.opponent is None else ScriptedOpponent(settings.opponent)
        self._heartbeat = Heartbeat(settings.heartbeat_file)
        self._link = make_link(
            settings,
            self._heartbeat,
            "Unity players",
            opponent=settings.opponent,
            advice=_ADVICE,
            quiet_seconds=settings.quiet_seconds,
        )
        self._demos = (
            None
            if settings.record is None
            else PlayerDemos(settings.record, episodes=settings.record_episodes, on_enough=self._link.request_stop)
        )
        self._processes: tuple[PlayerProcess, ...] = ()
        self._failure: ActorError | None = None
        self._gateway: Gateway | None = None
        self._supervisor: PlayerSupervisor | None = None
        self._told_at: float | None = None
        self._log = structlog.get_logger()

    def run(self) -> None:
        """Connects, starts the players, serves them, and closes the session in any case.

        Raises:
            ActorError: The actor cannot continue.
        """
        settings, link = self._settings, self._link
        with stop_signals(link.request_stop, self._cut):
            for door, conversation in zip(self._doors, self._conversations, strict=True):
                door.open(conversation)
            self._say_where()
            link.start()
            if self._stops:
                link.request_stop(self._stops[0])
            if settings.max_wall_seconds is not None:
                link.stop_after(settings.max_wall_seconds)
            try:
                with closing(link), self._served_metrics():
                    self._serve()
            finally:
                if self._demos is not None:
                    self._demos.close()
                self._tell_players()
                self._end_players()

    def _serve(self) -> None:
        """Waits for the session, starts the players, and steps until the link stops.

        Raises:
            ActorError: The learner refused the actor, or the players failed too often.
        """
        settings, link = self._settings, self._link
        run = link.open(settings.connect_timeout)
        _refuse_lockstep(run)
        self._gateway = gateway = Gateway(
            link,
            run,
            self._mailbox,
            self._conversations,
            channels=_channels(self._plugins, run),
            script=self._script,
            demos=self._demos,
            heartbeat=self._heartbeat,
        )
        with self._players(resolve_rules(settings, run), run, gateway):
            try:
                gateway.run()
            except PolicyUnusable as error:
                raise ActorError(ExitCode.POLICY_FAILED, str(error)) from None
        if self._failure is not None:
            raise self._failure
        if link.error is not None:
            raise link.error

    @contextmanager
    def _players(self, rules: PlayerRules, run: RunInfo, gateway: Gateway) -> Iterator[None]:
        """Starts and watches players within the block; tells them to quit at its end."""
        if self._executable is None:
            yield
            return
        place = log_place(self._settings.log_dir, run)
        launch = rules.launch(self._executable, place.folder, place.prefix)
        first, conversations = self._settings.first_port, self._conversations
        self._processes = tuple(
            PlayerProcess(worker, first + worker, launch, shows_output=self._settings.log_level == "debug")
            for worker in range(len(conversations))
        )
        self._supervisor = supervisor = PlayerSupervisor(
            self._processes,
            conversations,
            rules,
            on_lost=gateway.player_lost,
            on_failure=self._fail,
            is_over=lambda: self._link.stopping,
        )
        try:
            supervisor.start()
            yield
        finally:
            supervisor.rest()
            self._tell_players()

    def _fail(self, error: ActorError) -> None:
        """Takes the fatal error of the supervisor."""
        self._failure = error
        self._link.request_stop(error.message)

    def _tell_players(self) -> None:
        """Tells all players to quit: waiting ones now, the others at their next call."""
        for conversation in self._conversations:
            conversation.close()
        self._told_at = self._told_at or time.monotonic()

    def _end_players(self) -> None:
        """Waits until all players and their children have ended; the session is closed in the meantime."""
        since_told_seconds = time.monotonic() - (self._told_at or time.monotonic())
        end_all(self._processes, max(0.0, LEAVE_SECONDS - since_told_seconds), TERM_SECONDS)

    def _cut(self) -> None:
        """Kills all players, inside a signal handler."""
        for process in self._processes:
            process.kill()

    def _served_metrics(self) -> AbstractContextManager[None]:
        """Serves the metrics of every actor and of players within the block."""
        return served_metrics(
            self._settings, self._link, self._heartbeat, self._settings.env or EDITOR, self._player_metrics
        )

    def _player_metrics(self) -> "PlayerMetrics":
        from actor_client.unity.metrics import PlayerMetrics, PlayersSnapshot, snapshot  # noqa: PLC0415 - loads prometheus_client

        def read() -> PlayersSnapshot:
            counts = AgentCounts() if self._gateway is None else self._gateway.counts
            restarts = 0 if self._supervisor is None else self._supervisor.restarts
            return snapshot(self._conversations, counts, restarts)

        return PlayerMetrics(read)

    def _say_where(self) -> None:
        settings, ports = self._settings, self._settings.ports
        last = ports.first + ports.players - 1
        self._log.info(
            "listening",
            hosts=",".join(ports.hosts),
            port=ports.first if ports.players == 1 else f"{ports.first}-{last}",
            learner=settings.learner,
        )
        if ports.is_editor:
            self._log.info("waiting_for_editor", next=_PLAY, port=ports.first)


def _channels(plugins: tuple[ChannelPlugin, ...], run: RunInfo) -> Callable[[int], SideChannels]:
    """Returns the factory of a player's side channels."""
    return lambda worker: SideChannels(worker, plugins, first_of_run=run.actor_index == 0 and worker == 0)


def _refuse_lockstep(run: RunInfo) -> None:
    """Refuses a lock-step run, which players could not repeat.

    The first round after a checkpoint begins with environments seeded from it. A player takes a seed only with its
    first message, so its draws after a reset depend on all its earlier draws.

    Raises:
        ActorError: The run is in lock-step.
    """
    refuse_lockstep(
        run,
        "Unity players do not support: they take a seed only at their start, so they cannot repeat a run; remove "
        "rollcast.lockstep from the run file, or train with rollcast act gym",
    )
