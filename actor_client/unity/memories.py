"""What the agents of a behavior id remember, over players and messages."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from actor_client.policy.actions import ActingPolicy
from actor_client.rollout.agents.recorder import MAX_AGENTS
from actor_client.unity.asking import Asking

FloatArray = NDArray[np.float32]


class AgentMemories:
    """One memory for each agent that was answered by a recurrent policy; an agent without one remembers zeros.

    A memory lasts until the agent's episode ends, its player is lost or reset, or a policy of another generation acts.
    An agent that asks again without having been answered remembers what it did before.

    Args:
        max_agents: Of one player; beyond it, those that were answered longest ago are forgotten.
    """

    __slots__ = ("_generation", "_known", "_max_agents")

    def __init__(self, max_agents: int = MAX_AGENTS) -> None:
        self._max_agents = max_agents
        self._generation: int | None = None
        self._known: dict[int, dict[int, FloatArray]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def of(self, policy: ActingPolicy, everyone: Sequence[Asking]) -> FloatArray | None:
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
            for asking in everyone
            for known in (self._known.get(asking.worker, {}),)
            for identity in asking.part.step.decisions.ids.tolist()
        ]
        return np.array(found, np.float32).reshape(len(found), policy.memory.size)

    def keep(self, everyone: Sequence[Asking], memory: FloatArray) -> None:
        """Keeps what those remember who were answered.

        Args:
            everyone: Who asked.
            memory: float32 [n, m], in their order.
        """
        rows = iter(memory)
        for asking in everyone:
            known = self._known.setdefault(asking.worker, {})
            for identity in asking.part.step.decisions.ids.tolist():
                known.pop(identity, None)
                known[identity] = next(rows).copy()  # last, for it was answered last; and not a part of all others'
            while len(known) > self._max_agents:
                del known[next(iter(known))]

    def ended(self, worker: int, ids: Iterable[int]) -> None:
        """Forgets agents of a player whose episodes ended."""
        known = self._known.get(worker)
        if known:
            for identity in ids:
                known.pop(identity, None)

    def drop(self, worker: int) -> None:
        """Forgets the agents of a player."""
        self._known.pop(worker, None)
