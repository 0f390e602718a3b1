"""The adapter of Gymnasium environments: makes them. Recordings with `--policy` need no learner."""

import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from actor_client.adapters import BatchAdapter
from actor_client.demos.batch import recorded
from actor_client.demos.policies import LocalPolicy, load_policy
from actor_client.endings import run_command
from actor_client.envs.base import EnvBatch
from actor_client.envs.factory import DEFAULT_BEHAVIOR, behavior_of, make_env_batch
from actor_client.envs.seeds import environment_seeds
from actor_client.envs.video import VideoRecorder
from actor_client.envs.wrappers import Wrapping
from actor_client.exits import ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.platform import stop_signals
from actor_client.running import run_actor
from actor_client.settings.commands import GymSettings
from actor_client.settings.loading import load


def run_gym(flags: Mapping[str, object]) -> ExitCode:
    """Steps environments for a learner (see `run_actor`), with `--policy` without one, or describes one."""
    flags = dict(flags)
    is_described = flags.pop("describe", False)
    settings = load(GymSettings, flags)
    if is_described:
        return describe(settings)
    return run_actor(GymAdapter, settings) if settings.policy is None else run_local(settings)


class GymAdapter(BatchAdapter):
    """Steps Gymnasium environments.

    Args:
        settings: The user's settings.
        made: Makes an environment, which the settings then just name; None for the one of that name.
    """

    def __init__(self, settings: GymSettings, made: Callable[..., Any] | None = None) -> None:
        super().__init__(settings, settings.env, behavior_of(settings.env), settings.behavior)
        self._make = batch_maker(settings, made)

    def make(self) -> EnvBatch:
        """Returns new environments."""
        return self._make()


def batch_maker(settings: GymSettings, made: Callable[..., Any] | None = None) -> Callable[[], EnvBatch]:
    """Returns the factory of the environments, used at the start and after a failure; see `GymAdapter`."""
    name, video = settings.behavior or behavior_of(settings.env), settings.video
    wrapping = Wrapping(
        wrap=settings.wrap,
        video=None if video is None else VideoRecorder(video, settings.video_every, name),
        frame_skip=settings.frame_skip,
        max_episode_steps=settings.max_episode_steps,
        frame_stack=settings.frame_stack,
    )
    lives = itertools.count()
    return lambda: make_env_batch(
        made or settings.env,
        num_envs=settings.num_envs,
        env_kwargs=settings.env_kwargs,
        vector=settings.vector,
        behavior=settings.behavior or DEFAULT_BEHAVIOR,
        wrapping=wrapping,
        warns=next(lives) == 0,
    )


def describe(settings: GymSettings) -> ExitCode:
    """Makes one environment, prints its kind of actions in a line of JSON, and returns the exit code.

    `train` chooses settings by it. The error of an environment that cannot be made has been written to standard error.
    """

    def act() -> None:
        batch = batch_maker(settings.model_copy(update={"num_envs": 1, "video": None}))()
        try:
            has_continuous = batch.spec.action.continuous_size > 0
            sys.stdout.write(f"described: {json.dumps({'continuous_actions': has_continuous})}\n")
        finally:
            batch.close()

    return run_command(act, settings)


LOOK_EVERY_STEPS: Final = 256
"""Steps between two checks of the clock."""


def run_local(settings: GymSettings) -> ExitCode:
    """Steps environments with `--policy` until enough is recorded, the time is over, or a signal comes.

    Returns:
        The exit code. The error that ended the actor has been written to standard error.
    """

    def act() -> None:
        stops: list[str] = []
        with (
            stop_signals(stops.append),
            recorded(
                settings.record,
                settings.behavior or behavior_of(settings.env),
                episodes=settings.record_episodes,
                on_enough=stops.append,
            ) as wrap,
        ):
            batch = wrap(batch_maker(settings)())
            try:
                _step_locally(settings, batch, load_policy(settings.policy or "", batch.spec, batch.num_envs), stops)
            finally:
                batch.close()
        structlog.get_logger().info("stopped", reason=stops[0] if stops else "--max-wall-seconds has passed")

    return run_command(act, settings)


def _step_locally(settings: GymSettings, batch: EnvBatch, policy: LocalPolicy, stops: list[str]) -> None:
    """Steps until `stops` is not empty, or the time is over.

    Raises:
        ActorError: The environments or the policy failed, or the file cannot be written.
    """
    heartbeat = Heartbeat(settings.heartbeat_file)
    until = None if settings.max_wall_seconds is None else time.monotonic() + settings.max_wall_seconds
    observations = batch.reset(environment_seeds(settings.seed, 0, batch.num_envs))
    policy.ended(range(batch.num_envs))
    steps = 0
    while not stops:
        if steps % LOOK_EVERY_STEPS == 0 and until is not None and time.monotonic() >= until:
            return
        chosen = policy.act(observations, batch.action_masks)
        result = batch.step(chosen.continuous, chosen.discrete)
        observations = result.observations
        if result.ended:
            policy.ended(result.ended)
        steps += 1
        heartbeat.beat()
