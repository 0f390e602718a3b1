"""Acts without a learner, for the sake of a recording: environments, a policy, a file."""

import time
import warnings
from typing import Final

import structlog

from actor_client import logs
from actor_client.demos.batch import recorded
from actor_client.demos.interface import LocalPolicy
from actor_client.demos.policies import load_policy
from actor_client.endings import ended
from actor_client.envs.base import EnvBatch
from actor_client.envs.factory import behavior_of, make_env_batch
from actor_client.envs.seeds import environment_seeds
from actor_client.exits import ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.platform import stop_signals
from actor_client.settings.gym import GymSettings

LOOK_EVERY_STEPS: Final = 256
"""How often the clock is looked at."""


def run_local(settings: GymSettings) -> ExitCode:
    """Steps environments with `--policy` until enough is recorded, the time is over, or a signal comes.

    Returns:
        The exit code. What ended the actor has been said on standard error.
    """
    logs.configure(settings.log_format, settings.log_level)
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"actor_client\.")

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
            batch = wrap(
                make_env_batch(
                    settings.env, num_envs=settings.num_envs, env_kwargs=settings.env_kwargs, vector=settings.vector
                )
            )
            try:
                policy = load_policy(settings.policy or "", batch.spec, batch.num_envs)
                _step(settings, batch, policy, stops)
            finally:
                batch.close()
        structlog.get_logger().info("stopped", reason=stops[0] if stops else "its time is over")

    return ended(act, settings.log_format)


def _step(settings: GymSettings, batch: EnvBatch, policy: LocalPolicy, stops: list[str]) -> None:
    """Steps until something is in `stops`, or the time is over.

    Raises:
        ActorError: The environments or the policy failed, or the file cannot be written.
    """
    heartbeat = Heartbeat(settings.heartbeat_file)
    until = None if settings.max_seconds is None else time.monotonic() + settings.max_seconds
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
