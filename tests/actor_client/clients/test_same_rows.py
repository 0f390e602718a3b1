"""Tests that a client's experience is that of an actor which steps the same environments itself."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.v1 import client_pb2

from actor_client.connection.link import LearnerLink
from actor_client.envs.factory import make_env_batch
from actor_client.envs.seeds import environment_seeds
from actor_client.rollout.link import BehaviorLink
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.acting import columns, started_link
from tests.actor_client.clients.harness import serving
from tests.actor_client.onnx_policies import linear_policy
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner

ENV, NAME, ENVS, STEPS = "MountainCar-v0", "MountainCar", 3, 64
"""No episode of it ends within these steps."""


def publish(learner: ScriptedLearner) -> None:
    """Publishes the policy of all tests, once the behavior is declared."""
    learner.wait_until(lambda: NAME in learner.indices)
    policy = linear_policy(0, name=NAME, observations=2, choices=3)
    learner.publish(NAME, 0, payload=policy.payload, described=policy.description)


def first_segments(learner: ScriptedLearner) -> dict[tuple[float, ...], dict[str, NDArray[Any]]]:
    """Waits for the first whole segment of each environment, and returns its rows."""
    found: dict[tuple[float, ...], dict[str, NDArray[Any]]] = {}

    def has_all() -> bool:
        for chunk in list(learner.chunks):
            parts, begin = columns(chunk), 0
            (seen,) = (name for name in parts if name.startswith("obs/"))
            for place, length in enumerate(parts["length"].tolist() if "length" in parts else ()):
                rows = slice(begin, begin + length)
                begin += length
                if parts["first_step"][place] == 0:
                    segment = {name: parts[name][rows] for name in (seen, "discrete_action", "log_prob", "reward")}
                    segment["final"] = parts[f"final_{seen}"][place]
                    found[tuple(parts[seen][rows][0].tolist())] = segment
        return len(found) == ENVS

    learner.wait_until(has_all)
    return found


def of_an_actor() -> dict[tuple[float, ...], dict[str, NDArray[Any]]]:
    """Returns what an actor records of the environments."""
    with ScriptedLearner() as learner:
        link: LearnerLink = started_link(learner)
        link.open(DEAD_SECONDS)
        batch = make_env_batch(ENV, num_envs=ENVS)
        spec = BehaviorSpec(NAME, batch.spec.observations, batch.spec.action)

        def declare() -> BehaviorLink:
            return link.declare(spec, 0, ENVS, DEAD_SECONDS)

        loop = RolloutLoop(
            lambda: make_env_batch(ENV, num_envs=ENVS), batch, link, declare, limits=LoopLimits(max_env_failures=1)
        )
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            publish(learner)
            return first_segments(learner)
        finally:
            link.request_stop("the test is over")
            thread.join(DEAD_SECONDS)
            link.close()
            batch.close()


def of_a_client() -> dict[tuple[float, ...], dict[str, NDArray[Any]]]:
    """Returns what a gateway records of a client that steps the environments, one agent for each."""
    batch = make_env_batch(ENV, num_envs=1)
    spec = BehaviorSpec(NAME, batch.spec.observations, batch.spec.action)
    batch.close()
    cars = [gymnasium.make(ENV) for _ in range(ENVS)]
    with ScriptedLearner() as learner, serving(learner) as served, served.player() as player:
        player.greet(spec)
        publisher = threading.Thread(target=publish, args=(learner,))
        publisher.start()
        seeds = environment_seeds(served.link.run_seed, 0, ENVS)
        seen = [car.reset(seed=seed)[0] for car, seed in zip(cars, seeds, strict=True)]
        rewards = [0.0] * ENVS
        for _ in range(STEPS + 1):
            values = np.concatenate(seen).tolist()
            steps = client_pb2.AgentSteps(behavior=NAME, agents=range(ENVS), values=values, rewards=rewards)
            (actions,) = player.step(steps).actions
            outcomes = [car.step(choice) for car, choice in zip(cars, actions.discrete, strict=True)]
            seen, rewards = [each[0] for each in outcomes], [float(each[1]) for each in outcomes]
        publisher.join()
        return first_segments(learner)


def test_a_client_leaves_the_rows_of_an_actor() -> None:
    """With the same seeds both see, do and get the same; log-probabilities are equal to 1e-6."""
    actor, client = of_an_actor(), of_a_client()
    assert actor.keys() == client.keys()
    for first, mine in actor.items():
        theirs = client[first]
        assert len(mine["reward"]) == STEPS
        for name in mine.keys() - {"log_prob"}:
            assert np.array_equal(mine[name], theirs[name]), name
        assert np.allclose(mine["log_prob"], theirs["log_prob"], atol=1e-6, rtol=0)
