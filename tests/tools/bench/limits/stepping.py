"""Measures the limit of one actor process: its own loop (policy, recorder, chunks) against a link that takes everything.

`python -m tests.tools.bench.limits.stepping ENVS SECONDS` prints one line of JSON.
"""

import json
import sys
from typing import Any

from actor_client.envs.factory import make_env_batch
from actor_client.rollout.vector.loop import RolloutLoop
from tests.tools.bench.limits.acting import balancing_policy
from tests.tools.bench.limits.nulllink import NullLink

ENV = "CartPole-v1"


def steps_per_second(envs: int, seconds: float) -> float:
    """Returns the rate of the loop in environment steps per second."""

    def make_batch() -> Any:
        return make_env_batch(ENV, num_envs=envs)

    batch = make_batch()
    link = NullLink(seconds)
    link.behavior.publish(balancing_policy(batch.spec))
    return RolloutLoop(make_batch, batch, link, lambda: link.behavior).run().steps_per_second


if __name__ == "__main__":
    found = steps_per_second(int(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.write(json.dumps({"steps_per_second": found}) + "\n")
