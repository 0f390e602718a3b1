"""A scripted environment with PettingZoo's parallel interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

MODULE = "tests.actor_client.pettingzoo.toys"
TERMINATED, TRUNCATED, IDLE = "terminated", "truncated", "idle"

Event = tuple[float, str]
"""The reward of an agent in a step, and what happens to it: nothing, an end, or no observation in this step."""
Script = Sequence[Mapping[str, Event]]
"""The agents of each step; an agent that was not there before joins."""

FIELD: Script = [
    {"a": (1.0, ""), "b": (10.0, "")},
    {"a": (2.0, ""), "b": (20.0, TERMINATED)},
    {"a": (3.0, ""), "c": (0.0, "")},
    {"a": (4.0, TRUNCATED), "c": (400.0, TERMINATED)},
]
"""b dies, c joins later, and a is cut off."""


class Field:
    """Plays a script; an observation has the number of the step and that of the agent.

    Args:
        script: What happens in each step of an episode.
        first: The agents at its begin.
        fails_at: The step of all, counted from 1, that raises; 0 = none.
        sizes: Sizes of observations by agent, 2 by default.

    Attributes:
        resets: Arguments of each reset.
        actions: Actions of each step.
        closed: How often it was closed.
    """

    made: ClassVar[list[Field]] = []

    def __init__(
        self,
        script: Script = FIELD,
        first: Sequence[str] = ("a", "b"),
        *,
        fails_at: int = 0,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.metadata = {"name": "field"}
        self.render_mode = None
        self.possible_agents = sorted({*first, *(agent for events in script for agent in events)})
        self.agents: list[str] = []
        self._script, self._first, self._fails_at = script, first, fails_at
        self._sizes = dict(sizes or {})
        self.resets: list[tuple[int | None, Any]] = []
        self.actions: list[dict[str, Any]] = []
        self.closed = 0
        self._step = 0
        self.made.append(self)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Returns what an agent sees."""
        return spaces.Box(-100.0, 100.0, (self._sizes.get(agent, 2),), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Returns what an agent can do."""
        return spaces.Discrete(2)

    def _sees(self, agent: str) -> Any:
        seen = np.zeros(self._sizes.get(agent, 2), np.float32)
        seen[:2] = self._step, ord(agent[0])
        return seen

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins the script again."""
        self.resets.append((seed, options))
        self._step = 0
        self.agents = list(self._first)
        return {agent: self._sees(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        """Plays a step of the script."""
        self.actions.append(dict(actions))
        if len(self.actions) == self._fails_at:
            raise RuntimeError("the field is on fire")
        events = self._script[self._step]
        self._step += 1
        seeing = [agent for agent, (_, what) in events.items() if what != IDLE]
        result = (
            {agent: self._sees(agent) for agent in seeing},
            {agent: reward for agent, (reward, _) in events.items()},
            {agent: what == TERMINATED for agent, (_, what) in events.items()},
            {agent: what == TRUNCATED for agent, (_, what) in events.items()},
            {agent: {"luck": float(self._step)} for agent in events},
        )
        self.agents = [agent for agent, (_, what) in events.items() if what in ("", IDLE)]
        return result

    def close(self) -> None:
        """Counts."""
        self.closed += 1

    def render(self) -> None:
        """Shows nothing."""


def duel(*, is_wrapped: bool = True, **kwargs: Any) -> Any:
    """Returns an environment of two agents in turns, with the wrapper that PettingZoo's environments have."""
    from pettingzoo.utils import wrappers

    from tests.actor_client.pettingzoo.turns import Duel

    return wrappers.OrderEnforcingWrapper(Duel(**kwargs)) if is_wrapped else Duel(**kwargs)


def nothing() -> None:
    """Returns nothing, which is no environment."""
