"""The adapter of Godot games: starts them, or waits for the editor, and steps them side by side."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from rollcast.v1 import policy_pb2

from actor_client.adapters import AgentAdapter
from actor_client.builds.executables import Engine, find_build
from actor_client.builds.process import PlayerProcess, end_all
from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.endings import Actor
from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.seeds import environment_seed
from actor_client.exits import ExitCode
from actor_client.godot.agent_roles import PolicyRoles
from actor_client.godot.game import Game
from actor_client.godot.ports import Port, Ports
from actor_client.rollout.agents.stepping import WAIT_SECONDS, RecoveringLoop
from actor_client.running import run_actor
from actor_client.settings.godot import EDITOR_PORT, GodotSettings
from actor_client.settings.loading import load

EDITOR: Final = "editor"
"""Name of the environment in metrics when no build is started."""
LEAVE_SECONDS: Final = 4.0
"""Seconds for games to quit when told; the sum with the next limit is below the stop time-out of a container."""
TERM_SECONDS: Final = 2.0
_PLAY: Final = (
    "press Play in the Godot editor; whenever it has stopped, press Play again: the run continues until Ctrl-C"
)

GODOT: Final = Engine(
    "Godot",
    "Godot exported",
    "Project, Export",
    "project.godot",
    "is for the learner: rollcast serve {env}; this command takes only --env BUILD, with the executable that Godot exported",
)

_log = structlog.get_logger(__name__)


def run_godot(flags: Mapping[str, object]) -> ExitCode:
    """Steps games for a learner; see `run_actor`."""
    return run_actor(GodotAdapter, load(GodotSettings, flags))


class GodotAdapter(AgentAdapter):
    """Steps games with the Godot RL Agents plug-in.

    Args:
        settings: The user's settings.

    Raises:
        ActorError: The build or the script of opponents cannot be used.
    """

    simulator = "Godot games"
    lockstep_fault = (
        "Godot games do not support: they take a seed only at their start, so they cannot repeat a run; remove "
        "rollcast.lockstep from the run file, or train with rollcast act gym"
    )

    def __init__(self, settings: GodotSettings) -> None:
        super().__init__(settings, settings.env or EDITOR, settings.opponent)
        self.connecting = {"env": self.environment, "num_envs": settings.num_envs}
        self._settings = settings
        self._executable = None if settings.env is None else find_build(settings.env, GODOT)
        self._games: list[Game] = []
        self._told_at: float | None = None
        self._ports: Ports
        self._of_editor: Port | None = None

    @contextmanager
    def prepared(self, actor: Actor) -> Iterator[None]:
        """Opens the port of the editor, and ends all games at the end of the block."""
        self._ports = Ports()
        try:
            if self._executable is None:
                self._of_editor = self._open_port(0)
                _log.info("waiting_for_editor", next=_PLAY, port=self._of_editor.number)
            with super().prepared(actor):
                yield
        finally:
            self._end_games()

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Starts the games, and steps them until the link stops.

        Raises:
            ActorError: A policy has no behavior, or a game failed too often.
            PolicyUnusable: A policy cannot act on the observations.
        """
        settings = self._settings
        roles = PolicyRoles(settings.behavior_rules, settings.team_rules, run)
        self._games = [self._game(worker, roles, actor.link) for worker in range(settings.num_envs)]
        try:
            GameLoop(
                actor.link,
                run.assignment,
                self._games,
                ports=self._ports,
                script=self._script,
                observe=self.observe,
                heartbeat=actor.heartbeat,
            ).run()
        finally:
            for game in self._games:
                game.dismiss()
            self._told_at = time.monotonic()

    def _game(self, worker: int, roles: PolicyRoles, link: LearnerLink) -> Game:
        settings, executable = self._settings, self._executable
        return Game(
            worker,
            lambda: self._of_editor or self._open_port(worker),
            None if executable is None else partial(self._process, executable, worker, link),
            roles,
            timeout_seconds=settings.timeout_wait,
            max_failures=settings.max_env_failures,
        )

    def _process(self, executable: Path, worker: int, link: LearnerLink, port: int, failures: int) -> PlayerProcess:
        """Returns the process of a game, with another seed after each failure unless the user gave one."""
        settings = self._settings
        if settings.env_seed is None:
            seed = environment_seed(link.run_seed, link.actor_index, worker, life=failures)
        else:
            seed = settings.env_seed + worker
        launch = GodotLaunch(executable, settings, seed)
        return PlayerProcess(worker, port, launch, shows_output=settings.log_level == "debug")

    def _open_port(self, worker: int) -> Port:
        first = self._settings.base_port
        if first is None:
            return self._ports.open(EDITOR_PORT if self._executable is None else None)
        return self._ports.open(first + worker)

    def _end_games(self) -> None:
        """Waits until all games and their children have ended; the session is closed in the meantime."""
        since_told_seconds = 0.0 if self._told_at is None else time.monotonic() - self._told_at
        end_all(self._processes, max(0.0, LEAVE_SECONDS - since_told_seconds), TERM_SECONDS)
        for game in self._games:
            game.close()
        if self._of_editor is not None:
            self._of_editor.close()
        self._ports.close()

    @property
    def _processes(self) -> list[PlayerProcess]:
        return [game.process for game in self._games if game.process is not None]

    def cut(self) -> None:
        """Kills all games."""
        for process in self._processes:
            process.kill()


@dataclass(frozen=True, slots=True)
class GodotLaunch:
    """Start options of one game.

    Attributes:
        executable: The path of the build's executable.
        settings: The user's settings.
        seed: Its seed.
    """

    executable: Path
    settings: GodotSettings
    seed: int

    def log_path(self, worker: int) -> None:
        """Returns None: the engine chooses where a game's log is."""
        del worker

    def command(self, worker: int, port: int) -> list[str]:
        """Returns the command line of a game.

        Args:
            worker: Unused: its seed is all that distinguishes a game.
            port: The port of its trainer on localhost.
        """
        del worker
        settings = self.settings
        words = [str(self.executable), f"--port={port}", f"--env_seed={self.seed}"]
        if not settings.viz:
            words += ["--disable-render-loop", "--headless"]
        if settings.fixed_fps is not None:
            words += ["--fixed-fps", str(settings.fixed_fps)]
        if settings.action_repeat is not None:
            words.append(f"--action_repeat={settings.action_repeat}")
        if settings.speedup is not None:
            words.append(f"--speedup={settings.speedup:g}")
        return [*words, *settings.env_args]


class GameLoop(RecoveringLoop[Game]):
    """Steps games until the link stops: each game that has answered acts with the others that have.

    Args:
        link: The connection; opened already.
        assignment: The learner's assignment at the opening.
        games: The games; the number of each is its index.
        ports: Their ports.
        **options: See `SteppingLoop`.
    """

    def __init__(
        self, link: LearnerLink, assignment: policy_pb2.Assignment, games: Sequence[Game], ports: Ports, **options: Any
    ) -> None:
        super().__init__(link, assignment, games, **options)
        self._ports = ports

    def _wait(self) -> None:
        """Waits for the answer of a game, or for the learner if none is to answer."""
        if any(game.owes for game in self._simulators):
            self._ports.wait(WAIT_SECONDS)
        else:
            super()._wait()
            self._ports.wait(0.0)

    def _count_seconds(self, ready: Sequence[Game], seconds: float) -> None:
        """Counts the time that each game took for its step."""
        del seconds
        for game in ready:
            if game.step_seconds:
                self._rollout.env_step_seconds.add(game.step_seconds)
                game.step_seconds = 0.0

    def _fail(self, simulator: Game, failure: EnvironmentFailed) -> None:
        """Handles a failure as `RecoveringLoop` does; the editor may stop a game whenever its user likes.

        Raises:
            EnvironmentFailedTooOften: A build failed too often.
        """
        if not simulator.is_of_editor:
            super()._fail(simulator, failure)
            return
        simulator.fail(failure)
        _log.warning("editor_stopped", reason=failure.cause, discarded_steps=self._lose(simulator), next=_PLAY)
