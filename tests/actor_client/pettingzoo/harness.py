"""Scripted environments that act for a scripted learner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from rollcast.specs import BehaviorSpec
from rollcast.tensors import decode
from rollcast.v1 import trajectory_pb2

from actor_client.connection.link import LearnerLink
from actor_client.exits import ActorError
from actor_client.pettingzoo.agent_roles import AgentRoles
from actor_client.pettingzoo.agents import Agents, agents_of
from actor_client.pettingzoo.app import EnvironmentLoop
from actor_client.pettingzoo.batches import GroupReward
from actor_client.pettingzoo.environment import AgentEnvironment, Calls
from actor_client.policy.runner import Policy
from actor_client.rollout.agents.scripts import ScriptedOpponent
from tests.actor_client.pettingzoo.test_cast import rules
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner
from tests.actor_client.unity.policies import described, flat_policy


class Segment(NamedTuple):
    """One segment that a learner received."""

    behavior_index: int
    team: int
    env: int
    agent: int
    end: int
    rewards: list[float]
    group_rewards: list[float]
    group: int


class Acting:
    """Environments in a thread.

    Attributes:
        learner: Whom they act for.
        link: The connection.
        failure: The error with which the loop ended.
    """

    def __init__(self, learner: ScriptedLearner, link: LearnerLink, loop: EnvironmentLoop) -> None:
        self.learner = learner
        self.link = link
        self.failure: Exception | None = None
        self._loop = loop

    def run(self) -> None:
        """Runs the loop to its end."""
        try:
            self._loop.run()
        except ActorError as error:
            self.failure = error

    def publish(self, behavior: str = "Run", **outputs: Any) -> None:
        """Broadcasts a policy once the behavior is declared."""
        spec = self.declared(behavior)
        self.learner.publish(behavior, 0, payload=flat_policy(spec, **outputs), described=described(spec))

    def declared(self, behavior: str = "Run") -> BehaviorSpec:
        """Returns what the behavior was declared as."""
        self.learner.wait_until(lambda: behavior in self.link.books())
        requests = [each for each in self.learner.declared if each.spec.name == behavior]
        return BehaviorSpec.from_message(requests[-1].spec)

    def steps(self) -> int:
        """Returns the number of received rows."""
        return sum(chunk.rows for chunk in self.learner.chunks)


@contextmanager
def acting(
    learner: ScriptedLearner,
    make: Callable[[], Any],
    *,
    num_envs: int = 1,
    share: GroupReward = "own",
    max_env_failures: int = 3,
    opponent: str = "",
    **patterns: str,
) -> Iterator[Acting]:
    """Runs environments during a block; checks at the end that the books balance."""

    def made() -> Agents:
        agents = agents_of(make())
        assert agents is not None
        return agents

    first = [made() for _ in range(num_envs)]
    link = LearnerLink(learner.address, actor_name="zoo", load=Policy.load, client_version="test", opponent=opponent)
    link.start()
    run = link.open(DEAD_SECONDS)
    roles, calls = AgentRoles(rules(**patterns), "Run"), Calls(num_envs)
    environments = [
        AgentEnvironment(
            worker, agents, made, roles=roles, link=link, calls=calls, share=share, max_failures=max_env_failures
        )
        for worker, agents in enumerate(first)
    ]
    script = ScriptedOpponent(opponent) if opponent else None
    loop = EnvironmentLoop(link, run.assignment, environments, script=script)
    acts = Acting(learner, link, loop)
    thread = threading.Thread(target=acts.run, name="zoo")
    thread.start()
    try:
        yield acts
    finally:
        link.request_stop("the test is over")
        thread.join(DEAD_SECONDS)
        link.close()
    assert not thread.is_alive()
    for view in link.books().values():
        assert view.balanced, view


def columns(chunk: trajectory_pb2.Chunk) -> dict[str, Any]:
    """Returns the columns of a chunk."""
    return {column.name: decode(column.tensor, max_bytes=1 << 20) for column in chunk.columns}


def segments(learner: ScriptedLearner) -> list[Segment]:
    """Returns all received segments, in order."""
    found = []
    for chunk in list(learner.chunks):
        parts, first = columns(chunk), 0
        for place, length in enumerate(parts.get("length", np.zeros(0)).tolist()):
            rows = slice(first, first + length)
            first += length
            shared = parts.get("group_reward")
            found.append(
                Segment(
                    chunk.behavior_index,
                    chunk.team,
                    int(parts["env"][place]),
                    int(parts["agent"][place]) & 0xFFFFFFFF,
                    int(parts["end"][place]),
                    parts["reward"][rows].tolist(),
                    [] if shared is None else shared[rows].tolist(),
                    int(parts["group"][place]) & 0xFFFFFFFF if "group" in parts else 0,
                )
            )
    return found


def column(learner: ScriptedLearner, name: str) -> list[float]:
    """Returns a column of all chunks that have it."""
    return [value for chunk in list(learner.chunks) for value in columns(chunk).get(name, np.zeros(0)).tolist()]
