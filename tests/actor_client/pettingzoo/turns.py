"""A scripted environment with PettingZoo's interface of turns."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

from tests.actor_client.pettingzoo.toys import TERMINATED, TRUNCATED, Script

DUEL: Script = [
    {"x": (1.0, ""), "o": (0.5, "")},
    {"x": (2.0, ""), "o": (0.25, "")},
    {"x": (-10.0, TERMINATED), "o": (10.0, TERMINATED)},
]
"""x moves, o moves, and x loses by its second move."""


class Duel(AECEnv[str, Any, Any]):
    """Plays a script in turns; agents see a mask that forbids the choice with the number of the turn, modulo 3.

    Args:
        script: Rewards and ends of each turn.
        keeps_dead: Never removes an agent that has ended, as a faulty environment.

    Attributes:
        actions: All actions with their agents.
    """

    def __init__(self, script: Script = DUEL, *, keeps_dead: bool = False) -> None:
        self.metadata = {"name": "duel"}
        self.possible_agents = ["x", "o"]
        self.render_mode = None
        self._script, self._keeps_dead = script, keeps_dead
        self.actions: list[tuple[str, int]] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Returns what an agent sees."""
        seen = spaces.Box(-100.0, 100.0, (2,), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Returns what an agent can do."""
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins the script again."""
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]
        self._turn = 0

    def observe(self, agent: str) -> Any:
        """Returns what an agent sees; only the agent in turn has a choice."""
        mask = np.ones(3, np.int8) if agent == self.agent_selection else np.zeros(3, np.int8)
        mask[self._turn % 3] = 0
        return {"observation": np.array([self._turn, ord(agent)], np.float32), "action_mask": mask}

    def step(self, action: Any) -> None:
        """Plays a turn."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            if not self._keeps_dead:
                self._was_dead_step(action)
            return
        self.actions.append((agent, int(action)))
        self._cumulative_rewards[agent] = 0.0
        for other, (reward, what) in self._script[self._turn].items():
            self.rewards[other] = reward
            self.terminations[other] = what == TERMINATED
            self.truncations[other] = what == TRUNCATED
        self._turn += 1
        self._accumulate_rewards()
        self.agent_selection = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]

    def close(self) -> None:
        """Does nothing."""

    def render(self) -> None:
        """Shows nothing."""
