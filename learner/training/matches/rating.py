r"""Rates players by the games between them, with draws and 95 % intervals; each game counts once.

The model is that of R. R. Davidson, On extending the Bradley-Terry model to accommodate ties in paired comparison
experiments, Journal of the American Statistical Association 65, 1970, equations 2.1 and 2.2. With strengths :math:`\pi` and
the draw parameter :math:`\nu`, player i beats, draws with and loses to player j in proportion to :math:`\pi_i`,
:math:`\nu \sqrt{\pi_i \pi_j}` and :math:`\pi_j`. In logarithms, the score of a game (1, 1/2, 0) is the sufficient
statistic of the strengths. The estimate is the mode of the posterior distribution; the intervals are those of its normal
approximation. `Standings` are those of players that all play one another, `Strengths` those of policies that follow one
another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learner.shared.saved_values import count, number, shown, text
from learner.training.matches.elo import DRAW, LOSS, SCALE, WIN

Float = NDArray[np.float64]
RatedPlayer: TypeAlias = tuple[str, int]
"""Name of a row of `Strengths`, and number of a player in it."""
Pair = tuple[int, int]
"""Places of two players of `Standings`; the first has the first seat."""

ELO_PER_UNIT: Final = SCALE / math.log(10.0)
"""Points per unit of a logarithmic strength."""
INTERVAL: Final = 1.959963984540054
"""Standard deviations on each side of a 95 % interval."""
PRIOR_DRAWS: Final = 1.0
"""Evidence for the draw parameter in addition to the games: this many draws in three times as many equal games."""
_MAX_ROUNDS: Final = 100
_CLOSE: Final = 1e-10
_MAX_STEP: Final = 2.0
STEP_ELO: Final = 200.0
"""Standard deviation between successive players, in points."""
ROW_ELO: Final = 400.0
"""Standard deviation between the first players of two rows, in points."""
ORIGIN_ELO: Final = 1.0
"""Standard deviation of the origin, in points: a positive number keeps the computation regular."""
PRIOR_ELO: Final = 600.0
"""Standard deviation of the prior of each strength in `Standings`, in points: a difference of 850 between two players is usual."""
ADVANTAGE_ELO: Final = 200.0
"""Standard deviation of the prior of the advantage of the first seat, in points."""


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


@dataclass(frozen=True, slots=True)
class SeatResults:
    """Results of one player by its seat.

    Attributes:
        name: Name of the player, or of its opponent in an evaluation.
        first: Games in the seat of the team with the smaller number.
        second: Games in the other seat.
    """

    name: str
    first: Results
    second: Results

    @property
    def games(self) -> float:
        """Number of games."""
        return self.first.games + self.second.games

    @property
    def score(self) -> float:
        """Share of the points that the player won: 1 for a win, 1/2 for a draw; 0 without games."""
        return (self.first.score + self.second.score) / self.games if self.games else 0.0


class Prior(NamedTuple):
    """A normal distribution of logarithmic strengths: precision ``[N, N]``, and precision times mean ``[N]``."""

    precision: Float
    towards: Float


class Meeting(NamedTuple):
    """Games of two players.

    Attributes:
        first, second: Places of the players among the estimated ones; -1 for a fixed second player.
        results: Results of the first player.
        fixed: Points of a fixed second player.
    """

    first: int
    second: int
    results: Results
    fixed: float = 0.0


class Estimate(NamedTuple):
    """Strengths in points.

    Attributes:
        values: Estimated strengths, ``[N]``.
        covariance: Covariance of their errors, ``[N, N]``: the inverse of the information matrix.
        log_draw: Logarithm of the draw parameter.
    """

    values: Float
    covariance: Float
    log_draw: float

    @property
    def errors(self) -> Float:
        """Halves of the 95 % intervals, ``[N]``."""
        return np.asarray(INTERVAL * np.sqrt(np.diag(self.covariance)))


def estimate(prior: Prior, meetings: Sequence[Meeting], start: Float, *, advantage: int = -1) -> Estimate:
    """Returns the mode of the posterior distribution, and the covariance of its normal approximation.

    Newton's method with limited steps: the logarithm of the posterior is concave in these parameters (Davidson, section
    3), and the last parameter is the logarithm of the draw parameter.

    Args:
        prior: Prior of the strengths.
        meetings: Results.
        start: First guess in points, ``[N]``.
        advantage: Place, among the strengths, of what the first seat adds to a player's strength (R. R. Davidson and
            R. J. Beaver, On extending the Bradley-Terry model to incorporate within-pair order effects, 1977); -1 for none.
    """
    games = _Games.of(meetings, advantage)
    parameters = np.append(start / ELO_PER_UNIT, 0.0)
    for _ in range(_MAX_ROUNDS):
        gradient, curvature = games.derivatives(prior, parameters)
        step = np.linalg.solve(curvature, gradient)
        size = float(np.abs(step).max())
        parameters += step * min(1.0, _MAX_STEP / max(size, _MAX_STEP))
        if size < _CLOSE:
            break
    _, curvature = games.derivatives(prior, parameters)
    covariance: Float = np.linalg.inv(curvature)[:-1, :-1].astype(np.float64) * ELO_PER_UNIT**2
    return Estimate(parameters[:-1] * ELO_PER_UNIT, covariance, float(parameters[-1]))


def probabilities(differences: Float, log_draw: float) -> tuple[Float, Float]:
    """Returns the probabilities of a win and of a draw of a player over another, ``[P]`` each.

    Args:
        differences: Its logarithmic strength minus that of the other, ``[P]``.
        log_draw: Logarithm of the draw parameter.
    """
    half = differences / 2.0
    weights = np.stack([half, np.full_like(half, log_draw), -half])
    weights = np.exp(weights - weights.max(0))
    win, draw, _ = weights / weights.sum(0)
    return win, draw


def information(win: Float, draw: Float) -> Float:
    """Returns the variance of a game's score (1, 1/2, 0), which is what one game tells of the difference, ``[P]``."""
    return win + 0.25 * draw - (win + DRAW * draw) ** 2


class _Games(NamedTuple):
    """Meetings as arrays; `P` pairs.

    Attributes:
        first, second: As in `Meeting`, ``[P]``.
        fixed: Logarithmic strength of fixed second players, ``[P]``.
        scores, draws, totals: Score of the first player, and numbers of draws and of games, ``[P]``.
        advantage: As in `estimate`.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    fixed: Float
    scores: Float
    draws: Float
    totals: Float
    advantage: int

    @classmethod
    def of(cls, meetings: Sequence[Meeting], advantage: int) -> Self:
        first, second = np.asarray([each[:2] for each in meetings], np.intp).reshape(-1, 2).T
        found = [(each.fixed, each.results.score, each.results.draws, each.results.games) for each in meetings]
        fixed, scores, draws, totals = np.asarray(found, np.float64).reshape(-1, 4).T
        return cls(first, second, fixed / ELO_PER_UNIT, scores, draws, totals, advantage)

    def derivatives(self, prior: Prior, parameters: Float) -> tuple[Float, Float]:
        """Returns the gradient of the logarithm of the posterior, ``[N + 1]``, and its negative Hessian."""
        players, log_draw = parameters[:-1], parameters[-1]
        size = len(players)
        gradient, curvature = np.zeros(size + 1), np.zeros((size + 1, size + 1))
        gradient[:-1], curvature[:-1, :-1] = prior.towards - prior.precision @ players, prior.precision
        share = 1.0 / (1.0 + 2.0 * math.exp(-float(log_draw)))  # of draws between equal players
        gradient[-1], curvature[-1, -1] = PRIOR_DRAWS * (1.0 - 3.0 * share), PRIOR_DRAWS * 3.0 * share * (1.0 - share)
        others = np.where(self.second < 0, self.fixed, players[self.second])
        added = 0.0 if self.advantage < 0 else players[self.advantage]
        win, draw = probabilities(players[self.first] - others + added, float(log_draw))
        score = win + DRAW * draw
        surplus, spread = self.scores - self.totals * score, self.totals * information(win, draw)
        with_draw = self.totals * draw * (DRAW - score)
        # Each pair enters as the difference of two players: +1 in the place of the first, -1 in that of the second.
        sides = np.zeros((len(win), size + 1))
        rows = np.arange(len(win))
        sides[rows, self.first] = 1.0
        estimated = self.second >= 0
        sides[rows[estimated], self.second[estimated]] = -1.0
        if self.advantage >= 0:
            sides[:, self.advantage] = 1.0
        gradient += surplus @ sides
        gradient[-1] += (self.draws - self.totals * draw).sum()
        curvature += sides.T @ (spread[:, None] * sides)
        curvature[-1] += with_draw @ sides
        curvature[:, -1] += with_draw @ sides
        curvature[-1, -1] += (self.totals * draw * (1.0 - draw)).sum()
        return gradient, curvature


@dataclass(frozen=True, slots=True)
class Standings:
    """Ratings of N players that all play one another.

    They are relative to the mean of all players, so that no player is an arbitrary origin with an interval of zero. A weak
    normal prior keeps players without a loss finite.

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
    deviations = np.append(np.full(players, PRIOR_ELO), ADVANTAGE_ELO) / ELO_PER_UNIT
    prior = Prior(np.diag(deviations**-2), np.zeros(players + 1))
    meetings = [Meeting(*pair, found) for pair, found in results.items() if found.games]
    found = estimate(prior, meetings, np.zeros(players + 1), advantage=players)
    centered = np.eye(players + 1)
    centered[:players, :players] -= 1.0 / players
    found = Estimate(centered @ found.values, centered @ found.covariance @ centered, found.log_draw)
    return Standings(
        ratings=found.values[:players],
        errors=found.errors[:players],
        covariance=found.covariance[:players, :players],
        advantage=float(found.values[players]),
        advantage_error=float(found.errors[players]),
        log_draw=found.log_draw,
    )


def by_seat(names: Sequence[str], results: Mapping[Pair, Results]) -> list[SeatResults]:
    """Returns the results of each player by its seat.

    Args:
        names: Names of the players.
        results: Results of the player in the first seat, by the places of both.
    """
    found = [SeatResults(name, Results(), Results()) for name in names]
    for (first, second), each in results.items():
        found[first].first.count(each.wins, each.draws, each.losses)
        found[second].second.count(each.losses, each.draws, each.wins)
    return found


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

    A row has the snapshots of a policy and its newest version. Because a policy changes little between two snapshots, the
    strength of each has a normal prior around that of its predecessor (as in R. Coulom, Whole-History Rating, 2008), which
    also keeps strengths without losses finite. Each frozen file is a row of one. The first player of the first row is the
    origin. A forgotten player keeps its strength as a fixed opponent of the players that met it.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._results: dict[tuple[RatedPlayer, RatedPlayer], Results] = {}
        self._fixed: dict[RatedPlayer, float] = {}  # strengths of forgotten players
        self._ratings: dict[RatedPlayer, Rating] = {}
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

    def current(self, name: str) -> RatedPlayer:
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

    def add(self, player: RatedPlayer, opponent: RatedPlayer, result: float, share: float = 1.0) -> None:
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

    def ratings(self) -> Mapping[RatedPlayer, Rating]:
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

    def _knows(self, player: RatedPlayer) -> bool:
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

    def _fit(self) -> dict[RatedPlayer, Rating]:
        players = [(name, number_) for name, row in self._rows.items() for number_ in range(row.first, row.end)]
        places = {player: place for place, player in enumerate(players)}
        start = [self._ratings[each].value if each in self._ratings else self._rows[each[0]].mean for each in players]
        meetings = [
            Meeting(places[player], places.get(opponent, -1), each, self._fixed.get(opponent, 0.0))
            for (player, opponent), each in self._results.items()
        ]
        found = estimate(self._prior(places), meetings, np.asarray(start))
        return {
            each: Rating(value, error)
            for each, value, error in zip(players, found.values.tolist(), found.errors.tolist(), strict=True)
        }

    def _prior(self, places: Mapping[RatedPlayer, int]) -> Prior:
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


def _lists(value: object, length: int) -> list[Mapping[int, Any]]:
    """Returns rows of a state by place.

    Raises:
        ValueError: They are not lists of this length.
    """
    if not isinstance(value, list) or any(not isinstance(each, list | tuple) or len(each) != length for each in value):
        raise ValueError(f"they are not lists of {length} values")
    return [dict(enumerate(each)) for each in value]
