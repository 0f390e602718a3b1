"""A game of two teams of two for self-play: several environments step slowly, to leave the processors to others."""

from __future__ import annotations

import threading
from typing import Any

from tests.actor_client.pettingzoo.toys import TERMINATED, Field, Script

MODULE = "tests.nightly.chaos.match:Match"
OPTIONS = (
    *("--num-envs", "2", "--behavior", "Match", "--team", "blue_*=1"),
    *("--group", "red_*=red", "--group", "blue_*=blue"),
)
AGENTS = ("red_0", "red_1", "blue_0", "blue_1")
ROUNDS = 12
STEP_SECONDS = 0.01


def _game(lead: float) -> Script:
    """Returns a game whose second agents leave in the middle, while their mates play on; red wins with a positive lead."""
    rounds: list[dict[str, tuple[float, str]]] = [
        {agent: (0.0, "") for agent in AGENTS if number < ROUNDS // 2 or agent.endswith("0")}
        for number in range(ROUNDS)
    ]
    rounds[ROUNDS // 2 - 1] |= {agent: (0.0, TERMINATED) for agent in AGENTS if agent.endswith("1")}
    rounds[-1] = {"red_0": (lead, TERMINATED), "blue_0": (-lead, TERMINATED)}
    return rounds


GAMES = tuple(_game(lead) for lead in (1.0, 0.0, -1.0))


class Match(Field):
    """Games that red wins, that nobody wins, and that blue wins, in turns."""

    def __init__(self) -> None:
        super().__init__(GAMES[0], AGENTS)
        self._games = 0
        self._pause = threading.Event()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins the next game."""
        self._script = GAMES[self._games % len(GAMES)]
        self._games += 1
        self.resets.clear()
        return super().reset(seed, options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Plays a round."""
        self._pause.wait(STEP_SECONDS)  # `time.sleep` fails under a library that changes the clock
        self.actions.clear()
        return super().step(actions)
