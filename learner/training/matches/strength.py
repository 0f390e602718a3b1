"""Estimates strengths with draws and confidence intervals, counting each game once.

The model is Davidson's (`learner.training.matches.davidson`). Players are the snapshots of a pool and the current policy. Because a policy changes little between two snapshots, its
strength has a normal prior around that of its predecessor (as in R. Coulom, Whole-History Rating, 2008), which also keeps
strengths without losses finite. Each behavior has such a row of players, and each frozen file is a row of one. The first
player of the first row is the origin. The estimate is the mode of the posterior distribution; the intervals are those of
its normal approximation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from learner.shared.saved_values import count, number, shown, text
from learner.training.matches.davidson import ELO_PER_UNIT, INTERVAL, Games, Prior, maximize
from learner.training.matches.elo import DRAW, LOSS, WIN

Player: TypeAlias = tuple[str, int]
"""Name of a row, and number of a player in it."""

STEP_ELO: Final = 200.0
"""Standard deviation between successive players, in points."""
ROW_ELO: Final = 400.0
"""Standard deviation between the first players of two rows, in points."""
ORIGIN_ELO: Final = 1.0
"""Standard deviation of the origin, in points: a positive number keeps the computation regular."""


@dataclass(frozen=True, slots=True)
class Rating:
    """An estimated strength.

    Attributes:
        value: Points; a difference of 400 means odds of ten to one between win and loss.
        error: Half of the 95 % interval, in points.
    """

    value: float
    error: float


@dataclass(slots=True)
class Results:
    """Results of one player against another. A game against several opponents counts in equal shares.

    Attributes:
        wins, draws, losses: Numbers of games, as seen by the first player.
    """

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0

    @property
    def games(self) -> float:
        """Number of games."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """Wins and half of the draws."""
        return self.wins + DRAW * self.draws

    def add(self, result: float, share: float = 1.0) -> None:
        """Counts a game."""
        self.count(share * (result == WIN), share * (result == DRAW), share * (result == LOSS))

    def count(self, wins: float, draws: float, losses: float) -> None:
        """Counts several games."""
        self.wins += wins
        self.draws += draws
        self.losses += losses


@dataclass(slots=True)
class _Row:
    """Successive players.

    Attributes:
        first: Number of the oldest player that is estimated.
        end: Number after that of the newest player.
        mean, error: Prior of the first player: mean and standard deviation, in points.
    """

    first: int
    end: int
    mean: float
    error: float

    @property
    def current(self) -> int:
        return self.end - 1


class Strengths:
    """The games and strengths of rows of players, of which only the newest are kept.

    A forgotten player keeps its strength as a fixed opponent of the players that met it.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._results: dict[tuple[Player, Player], Results] = {}
        self._fixed: dict[Player, float] = {}  # strengths of forgotten players
        self._ratings: dict[Player, Rating] = {}
        self._is_new = False

    def add_row(self, name: str, initial: float) -> None:
        """Adds a row with one player, unless there is one of this name.

        Args:
            name: Name of the row.
            initial: Expected strength of its first player, in points; the strength itself for the first row.
        """
        if name not in self._rows:
            error = ROW_ELO if self._rows else ORIGIN_ELO
            self._rows[name] = _Row(0, 1, initial, error)
            self._is_new = True

    def current(self, name: str) -> Player:
        """Returns the newest player of a row."""
        return name, self._rows[name].current

    def advance(self, name: str, kept: int) -> None:
        """Ends the games of the current player of a row, which has become a snapshot; a new one follows.

        Args:
            name: Name of the row.
            kept: Most players of the row that are estimated.
        """
        row = self._rows[name]
        row.end += 1
        self._is_new = True
        while row.end - row.first > kept:
            self._forget(name, row)

    def add(self, player: Player, opponent: Player, result: float, share: float = 1.0) -> None:
        """Counts a game; ignores one of forgotten players, or of a player against itself.

        Args:
            player: The player.
            opponent: Its opponent.
            result: Result for the player.
            share: Share of the game.
        """
        if player != opponent and self._knows(player) and (self._knows(opponent) or opponent in self._fixed):
            self._results.setdefault((player, opponent), Results()).add(result, share)
            self._is_new = True

    def ratings(self) -> Mapping[Player, Rating]:
        """Returns the ratings of all players that are not forgotten."""
        if self._is_new:
            self._ratings, self._is_new = self._fit(), False
        return self._ratings

    def state_dict(self) -> dict[str, Any]:
        """Returns games and rows as plain values."""
        return {
            "rows": [[name, row.first, row.end, row.mean, row.error] for name, row in self._rows.items()],
            "fixed": [[*player, value] for player, value in self._fixed.items()],
            "results": [
                [*player, *opponent, each.wins, each.draws, each.losses]
                for (player, opponent), each in self._results.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        rows = {}
        for each in _lists(state["rows"], 5):
            row = _Row(count(each, 1), count(each, 2), number(each, 3), number(each, 4, least=ORIGIN_ELO))
            if not row.first < row.end:
                raise ValueError(f"the players {row.first} to {row.end} are no row")
            rows[text(each, 0)] = row
        fixed = {(text(each, 0), count(each, 1)): number(each, 2) for each in _lists(state["fixed"], 3)}
        self._rows, self._fixed, self._results, self._is_new = rows, fixed, {}, True
        for each in _lists(state["results"], 7):
            player, opponent = (text(each, 0), count(each, 1)), (text(each, 2), count(each, 3))
            if player == opponent or not self._knows(player) or not (self._knows(opponent) or opponent in fixed):
                raise ValueError(f"there are games of the unknown players {shown(player[1])} and {shown(opponent[1])}")
            self._results[player, opponent] = Results(*(number(each, place, least=0.0) for place in (4, 5, 6)))

    def _knows(self, player: Player) -> bool:
        row = self._rows.get(player[0])
        return row is not None and row.first <= player[1] < row.end

    def _forget(self, name: str, row: _Row) -> None:
        """Makes the oldest player of a row a fixed opponent; the estimate of the next one becomes its prior."""
        ratings = self.ratings()
        oldest, following = (name, row.first), ratings[name, row.first + 1]
        row.first += 1
        row.mean, row.error = following.value, max(ORIGIN_ELO, following.error / INTERVAL)
        self._fixed[oldest] = ratings[oldest].value
        self._results = {key: each for key, each in self._results.items() if key[0] != oldest}
        met = {opponent for _, opponent in self._results}
        self._fixed = {player: value for player, value in self._fixed.items() if player in met}
        self._is_new = True

    def _fit(self) -> dict[Player, Rating]:
        players = [(name, number_) for name, row in self._rows.items() for number_ in range(row.first, row.end)]
        places = {player: place for place, player in enumerate(players)}
        start = [self._ratings[each].value if each in self._ratings else self._rows[each[0]].mean for each in players]
        found = maximize(self._prior(places), self._games(places), np.asarray(start) / ELO_PER_UNIT)
        values, errors = found.values * ELO_PER_UNIT, INTERVAL * np.sqrt(np.diag(found.covariance)) * ELO_PER_UNIT
        return {
            each: Rating(value, error)
            for each, value, error in zip(players, values.tolist(), errors.tolist(), strict=True)
        }

    def _prior(self, places: Mapping[Player, int]) -> Prior:
        size = len(places)
        precision, towards = np.zeros((size, size)), np.zeros(size)
        for name, row in self._rows.items():
            first, last = places[name, row.first], places[name, row.current]
            weight = (ELO_PER_UNIT / row.error) ** 2
            precision[first, first] += weight
            towards[first] += weight * row.mean / ELO_PER_UNIT
            weight = (ELO_PER_UNIT / STEP_ELO) ** 2
            for later in range(first + 1, last + 1):
                precision[later - 1 : later + 1, later - 1 : later + 1] += [[weight, -weight], [-weight, weight]]
        return Prior(precision, towards)

    def _games(self, places: Mapping[Player, int]) -> Games:
        keys, found = list(self._results), list(self._results.values())
        fixed = [self._fixed.get(opponent, 0.0) for _, opponent in keys]
        return Games(
            first=np.asarray([places[player] for player, _ in keys], np.intp),
            second=np.asarray([places.get(opponent, -1) for _, opponent in keys], np.intp),
            fixed=np.asarray(fixed, np.float64) / ELO_PER_UNIT,
            scores=np.asarray([each.score for each in found], np.float64),
            draws=np.asarray([each.draws for each in found], np.float64),
            totals=np.asarray([each.games for each in found], np.float64),
        )


def _lists(value: object, length: int) -> list[Mapping[int, Any]]:
    """Returns rows of a state by place.

    Raises:
        ValueError: They are not lists of this length.
    """
    if not isinstance(value, list) or any(not isinstance(each, list | tuple) or len(each) != length for each in value):
        raise ValueError(f"they are not lists of {length} values")
    return [dict(enumerate(each)) for each in value]
