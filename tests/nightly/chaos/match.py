"""A game of two teams of two for self-play: several environments step slowly, to leave the processors to others."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MODULE = "tests.nightly.chaos.match:Match"
OPTIONS = (
    "--num-envs",
    "2",
    "--behavior",
    "Match",
    "--team",
    "blue_*=1",
    "--group",
    "red_*=red",
    "--group",
    "blue_*=blue",
)
AGENTS = ("red_0", "red_1", "blue_0", "blue_1")
ROUNDS = 12
STEP_SECONDS = 0.01

Seen = dict[str, NDArray[np.float32]]


class Match:
    """Teams name numbers of 0, 1 and 2; who names the number seen gets a point, and the team with more of them wins.

    The second agent of each team leaves in the middle of a game, and its mate plays on.
    """

    def __init__(self) -> None:
        self.metadata = {"name": "match"}
        self.render_mode = None
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self._generator = np.random.default_rng()
        self._pause = threading.Event()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Returns what an agent sees."""
        del agent
        return spaces.Box(0.0, 1.0, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Returns what an agent can name."""
        del agent
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begins a game."""
        del options
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self.agents = list(AGENTS)
        self._round, self._points = 0, {"red": 0, "blue": 0}
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Seen, dict[str, float], dict[str, bool], dict[str, bool], Any]:
        """Plays a round."""
        self._pause.wait(STEP_SECONDS)  # `time.sleep` fails under a library that changes the clock
        acting, numbers = self.agents, self._numbers
        for agent in acting:
            self._points[_team(agent)] += int(actions[agent]) == numbers[agent]
        self._round += 1
        is_over = self._round == ROUNDS
        lead = self._points["red"] - self._points["blue"]
        rewards = {agent: float(np.sign(lead if _team(agent) == "red" else -lead)) * is_over for agent in acting}
        leaving = {agent: is_over or (self._round == ROUNDS // 2 and agent.endswith("1")) for agent in acting}
        seen = self._observe()
        self.agents = [agent for agent in acting if not leaving[agent]]
        return seen, rewards, leaving, dict.fromkeys(acting, False), {agent: {} for agent in acting}

    def close(self) -> None:
        """Does nothing."""

    def _observe(self) -> Seen:
        self._numbers = {agent: int(self._generator.integers(3)) for agent in self.agents}
        return {agent: np.eye(3, dtype=np.float32)[number] for agent, number in self._numbers.items()}


def _team(agent: str) -> str:
    return agent.partition("_")[0]
