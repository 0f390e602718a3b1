"""The adapter of Unity players: starts them, answers them, and ends them.

The ports are already open (`actor_client.unity.start`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import structlog

from actor_client.adapters import AgentAdapter
from actor_client.builds.executables import find_build
from actor_client.builds.process import PlayerProcess, end_all
from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.counts import AgentCounts
from actor_client.endings import Actor
from actor_client.exits import ActorError
from actor_client.settings.commands import UnitySettings
from actor_client.unity.channels.plugins import ChannelPlugin, load_plugins
from actor_client.unity.channels.side_channels import SideChannels
from actor_client.unity.conversation import Conversation
from actor_client.unity.gateway import Gateway
from actor_client.unity.mailbox import Mailbox
from actor_client.unity.players.launch import UNITY
from actor_client.unity.players.rules import PlayerRules, log_place, resolve_rules
from actor_client.unity.players.supervisor import PlayerSupervisor
from actor_client.unity.server import PlayerListener

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


class UnityAdapter(AgentAdapter):
    """Serves Unity players.

    Args:
        settings: The user's settings.
        doors: The open ports.
        stops: Holds the name of a signal that arrived before the actor had its handler.

    Raises:
        ActorError: The build, a plug-in or the script of opponents cannot be used.
    """

    simulator = "Unity players"
    advice = MappingProxyType({"UNKNOWN_BEHAVIOR": "or change the Behavior Name in Unity (Behavior Parameters)"})
    # The first round after a checkpoint begins with environments seeded from it. A player takes a seed only with its first
    # message, so its draws after a reset depend on all its earlier draws.
    lockstep_fault = (
        "Unity players do not support: they take a seed only at their start, so they cannot repeat a run; remove "
        "rollcast.lockstep from the run file, or train with rollcast act gym"
    )

    def __init__(self, settings: UnitySettings, doors: Sequence[PlayerListener], stops: Sequence[str] = ()) -> None:
        self._settings = settings
        self._stops = stops
        self._mailbox = Mailbox()
        again = _PLAY_AGAIN if settings.env is None else ""
        self._conversations = tuple(
            Conversation(worker, self._mailbox, again=again) for worker in range(settings.num_envs)
        )
        self._doors = doors
        self._executable = None if settings.env is None else find_build(settings.env, UNITY)
        self._plugins = load_plugins(settings.side_channel)
        super().__init__(settings, settings.env or EDITOR, settings.opponent)
        self.quiet_seconds = settings.quiet_seconds
        self._link: LearnerLink
        self._processes: tuple[PlayerProcess, ...] = ()
        self._failure: ActorError | None = None
        self._gateway: Gateway | None = None
        self._supervisor: PlayerSupervisor | None = None
        self._told_at: float | None = None
        self._log = structlog.get_logger()

    @contextmanager
    def prepared(self, actor: Actor) -> Iterator[None]:
        """Answers players at the open ports, and ends all players at the end of the block."""
        self._link = actor.link
        try:
            with super().prepared(actor):
                for door, conversation in zip(self._doors, self._conversations, strict=True):
                    door.open(conversation)
                self._say_where()
                if self._stops:
                    self._link.request_stop(self._stops[0])
                yield
        finally:
            self._tell_players()
            self._end_players()

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Starts the players, and steps until the link stops.

        Raises:
            ActorError: The players failed too often.
            PolicyUnusable: A policy cannot act on the observations.
        """
        self._gateway = gateway = Gateway(
            actor.link,
            run,
            self._mailbox,
            self._conversations,
            channels=_channels(self._plugins, run),
            script=self._script,
            demos=self._demos,
            heartbeat=actor.heartbeat,
        )
        with self._players(resolve_rules(self._settings, run), run, gateway):
            gateway.run()
        if self._failure is not None:
            raise self._failure

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

    def cut(self) -> None:
        """Kills all players."""
        for process in self._processes:
            process.kill()

    def metrics(self) -> "PlayerMetrics":
        """Returns the metrics of players."""
        from actor_client.unity.metrics import PlayerMetrics  # noqa: PLC0415 - loads prometheus_client

        return PlayerMetrics(
            self._conversations,
            lambda: AgentCounts() if self._gateway is None else self._gateway.counts,
            lambda: 0 if self._supervisor is None else self._supervisor.restarts,
        )

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
