"""Rates policies by the ELO of ML-Agents, so that curves of both can be compared.

Arpad E. Elo, The Rating of Chessplayers, Past and Present (1978), with K = 1 and one change per trajectory of a learning
agent, as in ML-Agents' ``GhostController.compute_elo_rating_changes``. An agent's trajectory counts if its episode and
that of its group ended and were not interrupted. A game of several agents therefore counts several times;
`learner.training.matches.rating` counts each game once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from learner.shared.saved_values import numbers

WIN, DRAW, LOSS = 1.0, 0.5, 0.0
"""Results of a game."""
SCALE: Final = 400.0
"""Difference of ratings at which the odds are ten to one."""


def expected(own: float, opponent: float) -> float:
    """Returns the result that the ratings predict, between 0 and 1: ``1 / (1 + 10^((opponent - own) / 400))``."""
    exponent = (opponent - own) / SCALE
    if exponent > 300:  # beyond it the power overflows, and the result rounds to 0 anyway
        return 0.0
    return 1.0 / (1.0 + math.pow(10.0, exponent))


class EloArray:
    """The ratings of one behavior: one per slot of its pool, and the current policy's at the end.

    Args:
        window: Number of slots.
        initial: First rating of every entry.

    Attributes:
        values: Ratings, ``[window + 1]``; the last is that of the current policy.
    """

    def __init__(self, window: int, initial: float) -> None:
        self.values = [initial] * (window + 1)

    @property
    def current(self) -> float:
        """Rating of the current policy."""
        return self.values[-1]

    def save(self, slot: int) -> None:
        """Gives a slot, whose snapshot has just been saved, the rating of the current policy."""
        self.values[slot] = self.current

    def state_dict(self) -> dict[str, Any]:
        """Returns the ratings."""
        return {"values": list(self.values)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`. With another window, the slots restart from the current rating.

        Raises:
            KeyError, ValueError: The state is not one that was saved here.
        """
        values = numbers(state, "values")
        if not values:
            raise ValueError("there are no ratings")
        self.values = values if len(values) == len(self.values) else [values[-1]] * len(self.values)


class Opponent(NamedTuple):
    """An opponent of a rated trajectory.

    Attributes:
        ratings: Ratings of its behavior.
        slot: Its entry; `learner.training.matches.pool.CURRENT` for the newest policy.
    """

    ratings: EloArray
    slot: int


def rate(own: EloArray, result: float, opponents: Sequence[Opponent]) -> float:
    """Changes the ratings after a trajectory, and returns the change of the current policy's rating.

    With one opponent this is ML-Agents' rule. Against its own newest policy both changes cancel. Several opponents count
    as one with their mean rating, and share its change.

    Args:
        own: Ratings of the learning agent's behavior.
        result: `WIN`, `DRAW` or `LOSS`.
        opponents: The opponents, at least one.
    """
    mean = sum(each.ratings.values[each.slot] for each in opponents) / len(opponents)
    change = result - expected(own.current, mean)
    for each in opponents:
        each.ratings.values[each.slot] -= change / len(opponents)
    own.values[-1] += change
    return change
