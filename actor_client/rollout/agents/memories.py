"""Memories of the agents of a behavior id, over simulators and messages."""

from collections.abc import Iterable, Sequence

import numpy as np

from actor_client.policy.actions import ActingPolicy, FloatArray
from actor_client.rollout.agents.interface import AgentRequest
from actor_client.rollout.agents.recorder import MAX_AGENTS


class AgentMemories:
    """One memory for each agent that was answered by a recurrent policy; an agent without one remembers zeros.

    A memory lasts until the agent's episode ends, its simulator is lost or reset, or a policy of another generation acts.
    An agent that asks again without having been answered remembers what it did before.

    Args:
        max_agents: Of one simulator; beyond it, those that were answered longest ago are forgotten.
    """

    def __init__(self, max_agents: int = MAX_AGENTS) -> None:
        self._max_agents = max_agents
        self._generation: int | None = None
        self._known: dict[int, dict[int, FloatArray]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def of(self, policy: ActingPolicy, everyone: Sequence[AgentRequest]) -> FloatArray | None:
        """Returns what those who ask remember, float32 [n, m], in their order; None for a policy without memory.

        Args:
            policy: What will act.
            everyone: Who asks.
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
        """Keeps what those remember who were answered.

        Args:
            everyone: Who asked.
            memory: float32 [n, m], in their order.
        """
        rows = iter(memory)
        for request in everyone:
            known = self._known.setdefault(request.worker, {})
            for identity in request.asking.ids.tolist():
                known.pop(identity, None)
                known[identity] = next(rows).copy()  # last, for it was answered last; and not a part of all others'
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
