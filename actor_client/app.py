"""Runs an actor: makes environments, connects, declares, steps, and closes. Recordings need no learner."""

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Final

import structlog

from actor_client.connection.link import LearnerLink
from actor_client.connection.session import RunInfo
from actor_client.demos.batch import recorded
from actor_client.demos.policies import LocalPolicy, load_policy
from actor_client.endings import closing, limited, run_command, watching
from actor_client.envs.base import EnvBatch
from actor_client.envs.factory import DEFAULT_BEHAVIOR, behavior_of, make_env_batch
from actor_client.envs.seeds import environment_seeds
from actor_client.envs.video import VideoRecorder
from actor_client.envs.wrappers import Wrapping
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.platform import stop_signals
from actor_client.policy.actions import PolicyUnusable
from actor_client.rollout.link import BehaviorLink
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop, RolloutStats
from actor_client.rollout.vector.watch import OneCall
from actor_client.serving import served_metrics
from actor_client.settings.commands import GymSettings
from actor_client.starting import make_link


def run_gym(settings: GymSettings) -> ExitCode:
    """Steps environments for a learner until the run is over, the time is over, or a signal comes.

    Returns:
        The exit code. The error that ended the actor has been written to standard error.
    """

    def act() -> None:
        heartbeat = Heartbeat(settings.heartbeat_file)
        link = make_link(settings, heartbeat)
        with stop_signals(link.request_stop):
            _act(settings, link, heartbeat)

    return run_command(act, settings)


def _act(settings: GymSettings, link: LearnerLink, heartbeat: Heartbeat) -> None:
    """Makes the environments, connects, steps, and closes the session in any case.

    Raises:
        ActorError: The actor cannot continue.
    """
    # Environments first: they may start processes, which must not inherit gRPC's state.
    make_batch = _batch_maker(settings)
    name = settings.behavior or behavior_of(settings.env)
    with recorded(settings.record, name, episodes=settings.record_episodes, on_enough=link.request_stop) as wrap:
        with watching(settings, link, OneCall(settings.num_envs)):
            batch = wrap(make_batch())
        link.start()
        if settings.max_wall_seconds is not None:
            link.stop_after(settings.max_wall_seconds)
        with (
            closing(link),
            limited(settings, link, batch.close),
            served_metrics(settings, link, heartbeat, settings.env),
        ):
            _step(settings, link, lambda: wrap(make_batch()), batch, heartbeat)


def _step(
    settings: GymSettings,
    link: LearnerLink,
    make_batch: Callable[[], EnvBatch],
    batch: EnvBatch,
    heartbeat: Heartbeat,
) -> None:
    """Resets the environments, declares the behavior, and steps it until the link stops.

    Raises:
        ActorError: The learner refused the actor, the behavior has self-play, or the environments failed too often.
    """
    log = structlog.get_logger()
    if settings.connect_timeout is None:
        log.info("connecting", address=settings.learner, env=settings.env, num_envs=settings.num_envs)
    run = link.open(settings.connect_timeout)
    behavior_name = _behavior(settings, run)
    spec = dataclasses.replace(batch.spec, name=behavior_name)

    def declare() -> BehaviorLink:
        behavior = link.declare(spec, 0, batch.num_envs, settings.connect_timeout)
        if behavior.awaits_assignment:
            raise ActorError(
                ExitCode.REFUSED,
                f"behavior {behavior_name} has self_play in the run file, but {settings.env} has no teams; use an "
                "environment with several agents, or remove self_play",
            )
        log.info("acting", behavior=behavior_name, time_horizon=behavior.time_horizon, agents=batch.num_envs)
        return behavior

    limits = LoopLimits(max_env_failures=settings.max_env_failures)
    loop = RolloutLoop(
        make_batch,
        batch,
        link,
        declare,
        limits=limits,
        on_stats=_say_progress,
        counts=link.counts,
        heartbeat=heartbeat,
    )
    try:
        with watching(settings, link, loop.environments):
            stats = loop.run()
        _say_progress(stats)
    except PolicyUnusable as error:
        raise ActorError(ExitCode.POLICY_FAILED, str(error)) from None
    if link.error is not None:
        raise link.error


def _batch_maker(settings: GymSettings) -> Callable[[], EnvBatch]:
    """Returns the factory of the environments, used at the start and after a failure."""
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
        settings.env,
        num_envs=settings.num_envs,
        env_kwargs=settings.env_kwargs,
        vector=settings.vector,
        behavior=settings.behavior or DEFAULT_BEHAVIOR,
        wrapping=wrapping,
        warns=next(lives) == 0,
    )


def _behavior(settings: GymSettings, run: RunInfo) -> str:
    """Returns the behavior to declare: the given one, the run's only one, or the environment's own name.

    Raises:
        ActorError: The run has several behaviors, and none was chosen.
    """
    if settings.behavior is not None:
        return settings.behavior
    if len(run.behaviors) > 1:
        names = ", ".join(run.behaviors)
        raise ActorError(ExitCode.USAGE, f"run {run.run_id} has the behaviors {names}; choose one with --behavior")
    return run.behaviors[0] if run.behaviors else behavior_of(settings.env)


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


def describe(settings: GymSettings) -> ExitCode:
    """Makes one environment, prints its kind of actions in a line of JSON, and returns the exit code.

    `train` chooses settings by it. The error of an environment that cannot be made has been written to standard error.
    """

    def act() -> None:
        batch = _batch_maker(settings.model_copy(update={"num_envs": 1, "video": None}))()
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
            batch = wrap(_batch_maker(settings)())
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
