"""Chooses which pair plays next: the one whose games narrow the intervals most."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from learner.training.matches.davidson import INTERVAL
from learner.training.matches.standings import Pair, Standings
from learner.training.matches.strength import Results


def next_pair(
    standings: Standings,
    results: Mapping[Pair, Results],
    planned: Mapping[Pair, int],
    *,
    games: int,
    interval: float,
    may_play: Callable[[Pair], bool],
) -> Pair | None:
    """Returns the places of the players of the next match; the first takes the first seat. None if no pair may play.

    It is the pair whose games lower the sum of the variances of the ratings most (A-optimality), of those ratings that are
    not narrow enough yet. Games that are being played count as played. Seats alternate: the first seat is for the player
    that has had it less often, in games of the pair and then in all games.

    Args:
        standings: The present ratings of N players.
        results: Results of finished matches.
        planned: Numbers of games of the matches that are being played.
        games: Games of the next match.
        interval: Halves of intervals, in points, that are narrow enough.
        may_play: Returns whether a pair may play, in whichever order of seats.
    """
    players = len(standings.ratings)
    pairs = [(one, two) for one in range(players) for two in range(one + 1, players) if may_play((one, two))]
    if not pairs:
        return None
    played = {pair: found.games for pair, found in results.items()}
    for pair, number in planned.items():
        played[pair] = played.get(pair, 0.0) + number
    covariance = standings.covariance.copy()
    for pair, number in planned.items():
        towards, factor = _gain(covariance, standings, pair, number)
        covariance -= factor * np.outer(towards, towards)
    wide = INTERVAL * np.sqrt(np.maximum(np.diag(covariance), 0.0)) > interval
    counted = wide if wide.any() else np.ones(players, np.bool_)

    def gain(pair: Pair) -> float:
        towards, factor = _gain(covariance, standings, pair, games)
        return round(
            factor * float((towards[counted] ** 2).sum()), 6
        )  # rounding errors decide between equal pairs otherwise

    def games_of(pair: Pair) -> float:
        return played.get(pair, 0.0) + played.get(pair[::-1], 0.0)

    one, two = min(pairs, key=lambda pair: (-gain(pair), games_of(pair), pair))

    def lead(player: int) -> float:
        return sum(number * ((first == player) - (second == player)) for (first, second), number in played.items())

    def first_seats(pair: Pair) -> tuple[float, float]:
        return played.get(pair, 0.0), lead(pair[0]) - lead(pair[1])

    return min((one, two), (two, one), key=first_seats)


def narrow_enough(standings: Standings, results: Collection[Results], interval: float) -> bool:
    """Returns whether all intervals are narrow enough, and there were games at all."""
    return bool(results) and standings.widest <= interval


def _gain(
    covariance: NDArray[np.float64], standings: Standings, pair: Pair, games: int
) -> tuple[NDArray[np.float64], float]:
    """Returns what games of a pair take from the covariance of the ratings: ``factor * outer(towards, towards)``.

    It is the change of an inverse by a matrix of rank one (Sherman-Morrison).

    Returns:
        ``towards``, ``[N]``, and ``factor``.
    """
    first, second = pair
    towards = covariance[:, first] - covariance[:, second]
    weight = games * standings.information(pair)
    return towards, weight / (1.0 + weight * float(towards[first] - towards[second]))
