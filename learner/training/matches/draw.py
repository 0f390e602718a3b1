"""Draws the opponents of matches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from learner.shared.saved_values import count
from learner.shared.settings.trainer import SelfPlaySettings
from learner.training.matches.fixed import FixedOpponent
from learner.training.matches.league import League
from learner.training.matches.pool import Snapshot
from learner.training.matches.rating import Results


class Random:
    """A sequence of random generators, each of which depends only on the seed and on its number.

    Args:
        seed: Seed of the run.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def next(self) -> np.random.Generator:
        """Returns the next generator."""
        self._drawn += 1
        return np.random.default_rng([self._seed, self._drawn])

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the sequence."""
        return {"drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, ValueError: The state is not one that was saved here.
        """
        self._drawn = count(state, "drawn")


def draw(league: League, random: np.random.Generator) -> FixedOpponent | Snapshot | None:
    """Returns a frozen opponent or a snapshot of a behavior, or None for the newest policy.

    A frozen opponent plays with probability ``frozen_opponents_ratio``, if there is one. Otherwise the newest policy plays
    with probability ``play_against_latest_model_ratio``, as in ML-Agents, and else a snapshot. Each snapshot, and each
    frozen opponent, is equally likely, or with ``draw: pfsp`` more likely the more often it wins (`pfsp_weights`).

    Args:
        league: Settings and snapshots of the behavior, and the results of the learning team against each.
        random: Source of random numbers.
    """
    settings, snapshots, frozen = league.settings, league.pool.snapshots, league.fixed.frozen
    if frozen and random.random() < settings.frozen_opponents_ratio:
        return frozen[_choose(settings, [each.results for each in frozen], random)]
    if random.random() >= 1.0 - settings.play_against_latest_model_ratio or not snapshots:
        return None
    return snapshots[_choose(settings, [league.against.get(each.number, Results()) for each in snapshots], random)]


def _choose(settings: SelfPlaySettings, results: list[Results], random: np.random.Generator) -> int:
    """Returns the place of one of several opponents, drawn by the learning team's results against each."""
    if settings.draw == "uniform":
        return int(random.integers(len(results)))
    return int(random.choice(len(results), p=pfsp_weights(results)))


def pfsp_weights(results: list[Results]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the probabilities of prioritized fictitious self-play, ``[N]``.

    They are proportional to ``(1 - p)^2`` with the win rate p of the learning policy (O. Vinyals et al., Grandmaster level in
    StarCraft II using multi-agent reinforcement learning, 2019, methods, hard opponents). A draw is half a win, and one
    win and one loss are added to the games, so that every opponent keeps a positive probability.

    Args:
        results: Results of the learning policy against each opponent.
    """
    rates = np.asarray([(each.score + 1.0) / (each.games + 2.0) for each in results], np.float64)
    weights = (1.0 - rates) ** 2
    return np.asarray(weights / weights.sum())
