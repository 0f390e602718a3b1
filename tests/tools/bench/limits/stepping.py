"""Measures the limits of one actor process: environments alone, and the loop without a network.

`python -m tests.tools.bench.limits.stepping ENVS SECONDS` prints one line of JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium

from actor_client.envs.factory import make_env_batch
from actor_client.rollout.vector.loop import RolloutLoop
from tests.tools.bench.limits.acting import GAINS, balancing_policy
from tests.tools.bench.limits.nulllink import NullLink

ENV = "CartPole-v1"
_BLOCK_STEPS = 64


def environments_alone(envs: int, seconds: float) -> float:
    """Returns the rate of a plain loop over Gymnasium environments, in environment steps per second."""
    environments: list[Any] = [gymnasium.make(ENV) for _ in range(envs)]
    steps: list[Callable[[int], Any]] = [environment.step for environment in environments]
    actions = [_balance(environment.reset(seed=seed)[0]) for seed, environment in enumerate(environments)]
    begun, taken = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for _ in range(_BLOCK_STEPS):
            for index, step in enumerate(steps):
                observation, _, terminated, truncated, _ = step(actions[index])
                if terminated or truncated:
                    observation, _ = environments[index].reset()
                actions[index] = _balance(observation)
        taken += _BLOCK_STEPS * envs
    rate = taken / (time.perf_counter() - begun)
    for environment in environments:
        environment.close()
    return rate


def actor_loop(envs: int, seconds: float) -> tuple[float, float]:
    """Returns the rate of the actor's own loop (policy, recorder, chunks) against a link that takes everything.

    Returns:
        Environment steps per second, and steps per chunk.
    """

    def make_batch() -> Any:
        return make_env_batch(ENV, num_envs=envs)

    batch = make_batch()
    link = NullLink(seconds)
    behavior = link.behavior
    behavior.publish(balancing_policy(batch.spec))
    stats = RolloutLoop(make_batch, batch, link, lambda: behavior).run()
    return stats.steps_per_second, behavior.rows / max(1, behavior.chunks)


def _balance(observation: Any) -> int:
    position, speed, angle, angular_speed = observation.tolist()
    score = GAINS[0] * position + GAINS[1] * speed + GAINS[2] * angle + GAINS[3] * angular_speed
    return 1 if score > 0 else 0


def main(envs: int, seconds: float) -> None:
    """Measures both, one after the other."""
    alone = environments_alone(envs, seconds)
    loop, chunk_steps = actor_loop(envs, seconds)
    figures = {"environments_alone": alone, "actor_loop": loop, "steps_per_chunk": chunk_steps}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
