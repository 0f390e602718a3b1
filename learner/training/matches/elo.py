"""Rates policies by the ELO of ML-Agents, so that curves of both can be compared.

Arpad E. Elo, The Rating of Chessplayers, Past and Present (1978), with K = 1 and one change per trajectory of a learning
agent, as in ML-Agents' ``GhostController.compute_elo_rating_changes``. An agent's trajectory counts if its episode and
that of its group ended and were not interrupted. A game of several agents therefore counts several times;
`learner.training.matches.rating` counts each game once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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


@dataclass(slots=True)
class Elo:
    """A rating that games change.

    Attributes:
        value: The rating.
    """

    value: float


def rate(own: Elo, result: float, opponents: Sequence[Elo]) -> float:
    """Changes the ratings after a trajectory, and returns the change of the current policy's rating.

    With one opponent this is ML-Agents' rule. Against its own newest policy both changes cancel. Several opponents count
    as one with their mean rating, and share its change.

    Args:
        own: Rating of the learning agent's current policy.
        result: `WIN`, `DRAW` or `LOSS`.
        opponents: Ratings of the opponents, at least one.
    """
    mean = sum(each.value for each in opponents) / len(opponents)
    change = result - expected(own.value, mean)
    for each in opponents:
        each.value -= change / len(opponents)
    own.value += change
    return change
