"""Scripted environments that act for a scripted learner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from actor_client.pettingzoo.agent_roles import AgentRoles
from actor_client.pettingzoo.agents import Agents, agents_of
from actor_client.pettingzoo.batches import GroupReward
from actor_client.pettingzoo.environment import AgentEnvironment, Calls
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.agents.stepping import RecoveringLoop
from tests.actor_client.acting import Acting, columns, started_link
from tests.actor_client.pettingzoo.test_cast import rules
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner


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
    link = started_link(learner, opponent=opponent)
    run = link.open(DEAD_SECONDS)
    roles, calls = AgentRoles(rules(**patterns), "Run"), Calls(num_envs)
    environments = [
        AgentEnvironment(
            worker, agents, made, roles=roles, link=link, calls=calls, share=share, max_failures=max_env_failures
        )
        for worker, agents in enumerate(first)
    ]
    script = ScriptedOpponent(opponent) if opponent else None
    loop = RecoveringLoop(link, run.assignment, environments, script=script)
    acts = Acting(learner, link, "Run")
    with acts.running(loop.run):
        yield acts


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
