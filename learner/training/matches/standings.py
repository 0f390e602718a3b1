"""Ratings of a tournament's players with 95 % intervals, from the results of all pairs and seats.

The model is Davidson's with an advantage of the first seat (`learner.training.matches.davidson`); a draw counts as half a win. A
weak normal prior keeps players without a loss finite. Ratings are relative to the mean of all players, so that no player
is an arbitrary origin with an interval of zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from learner.training.matches.davidson import ELO_PER_UNIT, INTERVAL, Games, Prior, information, maximize, probabilities
from learner.training.matches.strength import Results

Pair = tuple[int, int]
"""Places of two players; the first has the first seat."""

PRIOR_ELO: Final = 600.0
"""Standard deviation of the prior of each strength, in points: a difference of 850 between two players is usual."""
ADVANTAGE_ELO: Final = 200.0
"""Standard deviation of the prior of the advantage of the first seat, in points."""


@dataclass(frozen=True, slots=True)
class Standings:
    """Ratings of N players.

    Attributes:
        ratings: Points above the mean of all players, ``[N]``; a difference of 400 means odds of ten to one.
        errors: Halves of the 95 % intervals, in points, ``[N]``.
        covariance: Covariance of the ratings, in points squared, ``[N, N]``.
        advantage: What the first seat adds to a rating, in points.
        advantage_error: Half of its 95 % interval, in points.
        log_draw: Logarithm of the draw parameter.
    """

    ratings: NDArray[np.float64]
    errors: NDArray[np.float64]
    covariance: NDArray[np.float64]
    advantage: float
    advantage_error: float
    log_draw: float

    @property
    def widest(self) -> float:
        """Half of the widest interval, in points."""
        return float(self.errors.max())

    def order(self) -> list[int]:
        """Returns the places of the players, the strongest first."""
        return [int(place) for place in np.argsort(-self.ratings, kind="stable")]

    def information(self, pair: Pair) -> float:
        """Returns what one game of a pair tells of the difference of its ratings, in 1 / points squared."""
        first, second = pair
        difference = np.asarray([self.ratings[first] - self.ratings[second] + self.advantage]) / ELO_PER_UNIT
        return float(information(*probabilities(difference, self.log_draw))[0]) / ELO_PER_UNIT**2


def rate(players: int, results: Mapping[Pair, Results]) -> Standings:
    """Returns the ratings.

    Args:
        players: Number of players, N.
        results: Results of the player in the first seat, by the places of both.
    """
    pairs = [(pair, found) for pair, found in results.items() if found.games]
    deviations = np.append(np.full(players, PRIOR_ELO), ADVANTAGE_ELO) / ELO_PER_UNIT
    prior = Prior(np.diag(deviations**-2), np.zeros(players + 1))
    games = Games(
        first=np.asarray([first for (first, _), _ in pairs], np.intp),
        second=np.asarray([second for (_, second), _ in pairs], np.intp),
        fixed=np.zeros(len(pairs)),
        scores=np.asarray([found.score for _, found in pairs], np.float64),
        draws=np.asarray([found.draws for _, found in pairs], np.float64),
        totals=np.asarray([found.games for _, found in pairs], np.float64),
        advantage=players,
    )
    found = maximize(prior, games, np.zeros(players + 1))
    centered = np.eye(players + 1)
    centered[:players, :players] -= 1.0 / players
    values, covariance = (
        centered @ found.values * ELO_PER_UNIT,
        centered @ found.covariance @ centered * ELO_PER_UNIT**2,
    )
    errors = INTERVAL * np.sqrt(np.diag(covariance))
    return Standings(
        ratings=values[:players],
        errors=errors[:players],
        covariance=covariance[:players, :players],
        advantage=float(values[players]),
        advantage_error=float(errors[players]),
        log_draw=found.log_draw,
    )


@dataclass(frozen=True, slots=True)
class Record:
    """The results of one player.

    Attributes:
        first: Its results in the first seat.
        second: Its results in the second seat.
    """

    first: Results
    second: Results

    @property
    def games(self) -> float:
        """Number of its games."""
        return self.first.games + self.second.games

    @property
    def score(self) -> float:
        """Share of the points that it won: 1 for a win, 1/2 for a draw; 0 without games."""
        return (self.first.score + self.second.score) / self.games if self.games else 0.0


def records(players: int, results: Mapping[Pair, Results]) -> list[Record]:
    """Returns the results of each player by its seat.

    Args:
        players: Number of players.
        results: Results of the player in the first seat, by the places of both.
    """
    found = [Record(Results(), Results()) for _ in range(players)]
    for (first, second), each in results.items():
        found[first].first.count(each.wins, each.draws, each.losses)
        found[second].second.count(each.losses, each.draws, each.wins)
    return found
