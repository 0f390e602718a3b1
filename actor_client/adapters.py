"""Adapters for environments that a process steps itself: all in one batch, or simulators whose agents come and go."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import structlog
from rollcast.specs import BehaviorSpec

from actor_client.connection.session import RunInfo
from actor_client.demos.batch import Wrap, recorded
from actor_client.demos.players import PlayerDemos
from actor_client.endings import Actor, limited, watching
from actor_client.envs.base import EnvBatch
from actor_client.exits import ActorError, ExitCode
from actor_client.rollout.agents.interface import Observer
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.agents.stepping import SteppedSimulator, SteppingLoop
from actor_client.rollout.link import BehaviorLink
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop, RolloutStats
from actor_client.rollout.vector.watch import OneCall
from actor_client.running import Adapter, behavior_of_run
from actor_client.settings.commands import CommonSettings, SteppingSettings

CHOOSE: Final = "choose one with --behavior NAME"


class BatchAdapter(Adapter):
    """Steps a batch of environments together. Subclasses define `make`.

    Args:
        settings: The command's settings.
        environment: Name of the environment in the metrics and the log.
        own_behavior: The environment's own name of its behavior.
        behavior: The behavior that the user chose; None for the run's only one.
    """

    def __init__(
        self, settings: SteppingSettings, environment: str, own_behavior: str, behavior: str | None = None
    ) -> None:
        self.environment = environment
        self.connecting = {"env": environment, "num_envs": settings.num_envs}
        self._settings = settings
        self._own_behavior = own_behavior
        self._behavior = behavior
        self._wrap: Wrap
        self._batch: EnvBatch

    def make(self) -> EnvBatch:
        """Returns new environments; called at the start, and again after each failure.

        Raises:
            UnknownEnvironment: They cannot be made.
        """
        raise NotImplementedError

    @contextmanager
    def prepared(self, actor: Actor) -> Iterator[None]:
        """Makes the environments, and closes them at the end of the block; records demonstrations."""
        settings, link = self._settings, actor.link
        name, episodes = self._behavior or self._own_behavior, settings.record_episodes
        with recorded(settings.record, name, episodes=episodes, on_enough=link.request_stop) as self._wrap:
            with watching(settings, actor, OneCall(settings.num_envs)):
                self._batch = self._made()
            with limited(settings, actor, self._batch.close):
                yield

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Resets the environments, declares the behavior, and steps it until the link stops.

        Raises:
            ActorError: The learner refused the behavior, or the environments failed too often.
            PolicyUnusable: A policy cannot act on the observations.
        """
        settings, link, batch, log = self._settings, actor.link, self._batch, structlog.get_logger()
        name = self._behavior or behavior_of_run(run, self._own_behavior, CHOOSE)
        spec = dataclasses.replace(batch.spec, name=name)

        def declare() -> BehaviorLink:
            behavior = link.declare(spec, 0, batch.num_envs, settings.connect_timeout)
            if behavior.awaits_assignment:
                raise ActorError(
                    ExitCode.REFUSED,
                    f"behavior {name} has self_play in the run file, but {self.environment} has no teams; use an "
                    "environment with several agents, or remove self_play",
                )
            log.info("acting", behavior=name, time_horizon=behavior.time_horizon, agents=batch.num_envs)
            return behavior

        loop = RolloutLoop(
            self._made,
            batch,
            link,
            declare,
            limits=LoopLimits(max_env_failures=settings.max_env_failures),
            on_stats=_say_progress,
            counts=link.counts,
            heartbeat=actor.heartbeat,
        )
        with watching(settings, actor, loop.environments):
            stats = loop.run()
        _say_progress(stats)

    def _made(self) -> EnvBatch:
        return self._wrap(self.make())


def _say_progress(stats: RolloutStats) -> None:
    structlog.get_logger().info(
        "progress",
        steps=stats.steps,
        episodes=stats.episodes,
        steps_per_second=round(stats.steps_per_second, 1),
        wait_share=round(stats.wait_seconds / stats.seconds, 3) if stats.seconds > 0 else 0.0,
        env_failures=stats.env_failures,
        unusable_episodes=stats.unusable_episodes,
    )


class AgentAdapter(Adapter):
    """Records demonstrations of agents that come and go, and lets a script play opponents. Subclasses define `simulators`.

    Args:
        settings: The command's settings.
        environment: Name of the environment in the metrics.
        opponent: Name of the script that plays opponents; None for none.

    Raises:
        ActorError: The script of opponents cannot be used.
    """

    def __init__(self, settings: CommonSettings, environment: str, opponent: str | None) -> None:
        self.environment = environment
        self.opponent = opponent or ""
        self._script = None if opponent is None else ScriptedOpponent(opponent)
        self._demos: PlayerDemos | None = None
        self._recording = settings.record, settings.record_episodes

    @contextmanager
    def prepared(self, actor: Actor) -> Iterator[None]:
        """Records demonstrations within the block if the settings ask for it."""
        path, episodes = self._recording
        if path is None:
            yield
            return
        self._demos = PlayerDemos(path, episodes=episodes, on_enough=actor.link.request_stop)
        try:
            yield
        finally:
            self._demos.close()

    @property
    def observe(self) -> Callable[[BehaviorSpec, int], Observer] | None:
        """Creates the observer of a behavior id, which records demonstrations; None records none."""
        return None if self._demos is None else self._demos.of

    def simulators(self, actor: Actor, run: RunInfo) -> Sequence[SteppedSimulator]:
        """Returns the simulators, whose numbers are their places."""
        raise NotImplementedError

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Steps the simulators until the link stops.

        Raises:
            ActorError: The learner refused a behavior, or a simulator failed.
            PolicyUnusable: A policy cannot act on the observations.
        """
        SteppingLoop(
            actor.link,
            run.assignment,
            self.simulators(actor, run),
            script=self._script,
            observe=self.observe,
            heartbeat=actor.heartbeat,
        ).run()
