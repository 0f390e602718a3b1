"""Memories of the agents of a behavior id, across simulators and messages."""

from collections.abc import Iterable, Sequence

import numpy as np

from actor_client.policy.actions import ActingPolicy, FloatArray
from actor_client.rollout.agents.interface import AgentRequest
from actor_client.rollout.agents.recorder import MAX_AGENTS


class AgentMemories:
    """One memory per agent that a recurrent policy has answered; the memory of other agents is zeros.

    A memory lasts until the agent's episode ends, its simulator is lost or reset, or a policy of another generation
    acts. An agent that asks again before it was answered keeps its memory.

    Args:
        max_agents: Most agents of one simulator; beyond this, the agents that were answered longest ago are forgotten.
    """

    def __init__(self, max_agents: int = MAX_AGENTS) -> None:
        self._max_agents = max_agents
        self._generation: int | None = None
        self._known: dict[int, dict[int, FloatArray]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def of(self, policy: ActingPolicy, everyone: Sequence[AgentRequest]) -> FloatArray | None:
        """Returns the memory of asking agents, float32 [n, m], in their order; None for a policy without memory.

        Args:
            policy: The policy that will act.
            everyone: The asking agents.
        """
        if policy.generation != self._generation:
            self._known.clear()
            self._generation = policy.generation
        if not policy.memory.size:
            return None
        nothing = np.zeros(policy.memory.size, np.float32)
        found = [
            known.get(identity, nothing)
            for request in everyone
            for known in (self._known.get(request.worker, {}),)
            for identity in request.asking.ids.tolist()
        ]
        return np.array(found, np.float32).reshape(len(found), policy.memory.size)

    def keep(self, everyone: Sequence[AgentRequest], memory: FloatArray) -> None:
        """Stores the memories of the answered agents.

        Args:
            everyone: The asking agents.
            memory: float32 [n, m], in their order.
        """
        rows = iter(memory)
        for request in everyone:
            known = self._known.setdefault(request.worker, {})
            for identity in request.asking.ids.tolist():
                known.pop(identity, None)
                known[identity] = next(rows).copy()  # answered last; a view would keep the whole batch
            while len(known) > self._max_agents:
                del known[next(iter(known))]

    def ended(self, worker: int, ids: Iterable[int]) -> None:
        """Forgets agents of a simulator whose episodes ended."""
        known = self._known.get(worker)
        if known:
            for identity in ids:
                known.pop(identity, None)

    def drop(self, worker: int) -> None:
        """Forgets the agents of a simulator."""
        self._known.pop(worker, None)
