"""Tests the memories of agents between messages."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from rollcast.specs import ActionSpec, BehaviorSpec

from actor_client.policy.actions import MemoryForm
from actor_client.rollout.agents.runner import AgentMemories
from tests.actor_client.rollout.harness import RulePolicy

SPEC = BehaviorSpec("Case", (), ActionSpec(discrete_branches=(2,)))


def policy(generation: int = 1, size: int = 2, version: int = 0) -> RulePolicy:
    """Returns a policy with a memory of this size."""
    return RulePolicy(SPEC, version=version, generation=generation, memory=MemoryForm(size, 4 if size else 0))


def asking(worker: int, ids: Sequence[int]) -> Any:
    """Returns agents of a simulator that ask."""
    return SimpleNamespace(worker=worker, asking=SimpleNamespace(ids=np.array(ids, np.int64)))


def remembered(memories: AgentMemories, *everyone: Any, acting: RulePolicy | None = None) -> list[float]:
    """Returns the first number of each memory."""
    found = memories.of(acting or policy(), everyone)
    assert found is not None
    return [float(number) for number in found[:, 0]]


def keep(memories: AgentMemories, numbers: Sequence[float], *everyone: Any) -> None:
    """Keeps these numbers as the memories of answered agents."""
    memories.keep(everyone, np.repeat(np.array(numbers, np.float32)[:, None], 2, axis=1))


def test_each_agent_remembers_its_own() -> None:
    """Memories belong to simulator and id; agents without one have zeros."""
    memories = AgentMemories()
    everyone = (asking(0, [7, 8]), asking(1, [7]))
    assert remembered(memories, *everyone) == [0, 0, 0]
    keep(memories, [1, 2, 3], *everyone)
    assert remembered(memories, asking(1, [7, 9]), asking(0, [8, 7])) == [3, 0, 2, 1]
    assert len(memories) == 3


def test_episodes_and_simulators_that_end_are_forgotten() -> None:
    """An id that returns after its episode or simulator ended starts with zeros."""
    memories = AgentMemories()
    remembered(memories, asking(0, [1]))
    keep(memories, [1, 2, 3], asking(0, [1, 2]), asking(1, [1]))
    memories.ended(0, [2, 5])
    memories.ended(9, [1])
    assert remembered(memories, asking(0, [1, 2]), asking(1, [1])) == [1, 0, 3]
    memories.drop(0)
    memories.drop(9)
    assert remembered(memories, asking(0, [1, 2]), asking(1, [1])) == [0, 0, 3]


def test_versions_go_on_and_generations_begin() -> None:
    """A new version keeps memories; a new generation starts with zeros of its own size."""
    memories = AgentMemories()
    remembered(memories, asking(0, [1]))
    keep(memories, [5], asking(0, [1]))
    assert remembered(memories, asking(0, [1]), acting=policy(version=3)) == [5]
    found = memories.of(policy(generation=2, size=3), [asking(0, [1])])
    assert found is not None
    assert found.tolist() == [[0, 0, 0]]


def test_a_policy_without_memory_asks_for_none() -> None:
    """A policy without memory gets no memory array."""
    assert AgentMemories().of(policy(size=0), [asking(0, [1])]) is None


def test_agents_that_vanish_do_not_fill_the_machine() -> None:
    """Beyond a limit, the agents that were answered longest ago are forgotten."""
    memories = AgentMemories(max_agents=3)
    remembered(memories, asking(0, [1]))
    keep(memories, [1, 2, 3], asking(0, [1, 2, 3]))
    keep(memories, [1, 4], asking(0, [1, 4]))
    assert remembered(memories, asking(0, [1, 2, 3, 4])) == [1, 0, 3, 4]


def test_memories_are_copies() -> None:
    """Later changes to the policy's own array have no effect."""
    memories = AgentMemories()
    remembered(memories, asking(0, [1]))
    values = np.ones((1, 2), np.float32)
    memories.keep([asking(0, [1])], values)
    values[:] = 9
    assert remembered(memories, asking(0, [1])) == [1]
