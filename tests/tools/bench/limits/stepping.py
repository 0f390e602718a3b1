"""Measures the limit of one actor process: its own loop (policy, recorder, chunks) against a link that takes everything.

`python -m tests.tools.bench.limits.stepping ENVS SECONDS` prints one line of JSON. The policy, two layers of 64, balances, because
with short episodes the limit would be one of resetting environments.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from rollcast.policies import describe_payload
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk

from actor_client.envs.factory import make_env_batch
from actor_client.policy.runner import Policy
from actor_client.rollout.vector.loop import RolloutLoop
from tests.actor_client.rollout.harness import KeepingLink, limits
from tests.actor_client.scripted import policy_description

ENV = "CartPole-v1"
HIDDEN = 64
GAINS = (0.1, 0.2, 2.0, 0.5)
"""On position, speed, angle and angular speed; pushing to the side of their sum's sign balances for 500 steps."""
SHARPNESS = 40.0
CLOCK_EVERY_CHECKS = 64
"""A look at the clock costs as much as one of these checks."""


@dataclass
class NullBehavior(KeepingLink):
    """A declared behavior that accepts everything and forgets it."""

    def send(self, chunk: Chunk) -> None:
        """Counts the rows of a chunk as acked."""
        self.books.acked(chunk.rows)


class NullLink:
    """A session that stops after some seconds; see `actor_client.rollout.link.Link`."""

    run_seed = 1
    actor_index = 0
    error = None
    assignment = None

    def __init__(self, spec: BehaviorSpec, seconds: float) -> None:
        own = limits(age=0.025)
        self.behavior = NullBehavior(spec, time_horizon=64, max_policy_lag=4, limits=own, behavior_index=0, team=0)
        self._deadline = time.monotonic() + seconds
        self._checks = 0
        self._is_over = False

    @property
    def stopping(self) -> bool:
        """Returns whether the time is over; looks at the clock now and then."""
        self._checks += 1
        if self._checks % CLOCK_EVERY_CHECKS == 0:
            self._is_over = time.monotonic() >= self._deadline
        return self._is_over

    def declare(self, spec: BehaviorSpec, team: int, agents: int, timeout_seconds: float | None) -> NullBehavior:
        """Returns the one behavior."""
        return self.behavior

    def wait(self, timeout_seconds: float) -> None:
        """Returns immediately."""


def balancing_policy(spec: BehaviorSpec) -> Policy:
    """Returns a policy for CartPole's spec whose episodes are as long as those of a trained one."""
    first, second, last = (np.zeros(shape, np.float32) for shape in ((4, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 2)))
    # One unit carries the sum through both layers; the others compute zeros, in the same time.
    first[:, 0], second[0, 0], last[0] = GAINS, 1.0, (-SHARPNESS / 2, SHARPNESS / 2)
    weights: dict[str, NDArray[np.float32]] = {"w1": first, "w2": second, "w3": last}
    for layer in (1, 2, 3):
        weights[f"b{layer}"] = np.zeros(weights[f"w{layer}"].shape[1], np.float32)
    nodes = [
        helper.make_node("Gemm", ["obs_0", "w1", "b1"], ["sum1"]),
        helper.make_node("Tanh", ["sum1"], ["hidden1"]),
        helper.make_node("Gemm", ["hidden1", "w2", "b2"], ["sum2"]),
        helper.make_node("Tanh", ["sum2"], ["hidden2"]),
        helper.make_node("Gemm", ["hidden2", "w3", "b3"], ["scores"]),
        helper.make_node("LogSoftmax", ["scores"], ["logits"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "balance",
        [helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    payload: bytes = model.SerializeToString()
    return Policy.load(describe_payload(policy_description(spec.name, 0, 1, 1), payload), payload, spec)


def steps_per_second(envs: int, seconds: float) -> float:
    """Returns the rate of the loop in environment steps per second."""

    def make_batch() -> Any:
        return make_env_batch(ENV, num_envs=envs)

    batch = make_batch()
    link = NullLink(batch.spec, seconds)
    link.behavior.policies.append(balancing_policy(batch.spec))
    return RolloutLoop(make_batch, batch, link, lambda: link.behavior).run().steps_per_second


if __name__ == "__main__":
    found = steps_per_second(int(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.write(json.dumps({"steps_per_second": found}) + "\n")
