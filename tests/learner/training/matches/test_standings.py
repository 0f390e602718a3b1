"""Tests ratings and their intervals, and the choice of the next match, on simulated tournaments of known strengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from learner.training.matches.davidson import ELO_PER_UNIT, probabilities
from learner.training.matches.standings import Pair, Standings, rate, records
from learner.training.matches.strength import Results
from learner.training.matches.tournament import narrow_enough, next_pair

PLAYERS, MATCH, INTERVAL = 8, 20, 80.0


@dataclass
class Simulation:
    """A tournament of players with known strengths.

    Attributes:
        truth: Their strengths in points, with the mean 0.
        results: Results of the first seat.
        standings: The ratings at the end.
    """

    truth: NDArray[np.float64]
    results: dict[Pair, Results]
    standings: Standings

    @property
    def games(self) -> int:
        """Number of games."""
        return int(sum(each.games for each in self.results.values()))


def simulate(seed: int, *, advantage: float = 0.0, log_draw: float = -1.0, interval: float = INTERVAL) -> Simulation:
    """Plays a tournament as the command does, until the intervals are narrow enough.

    Args:
        seed: Seed of strengths and games.
        advantage: What the first seat adds to a strength, in points.
        log_draw: Logarithm of the draw parameter.
        interval: Halves of the intervals at which it ends.
    """
    random = np.random.default_rng(seed)
    truth = random.normal(0.0, 200.0, PLAYERS)
    truth -= truth.mean()
    results: dict[Pair, Results] = {}
    standings = rate(PLAYERS, results)
    while not narrow_enough(standings, results.values(), interval):
        pair = next_pair(standings, results, {}, games=MATCH, interval=interval, may_play=lambda _: True)
        assert pair is not None
        difference = np.asarray([truth[pair[0]] - truth[pair[1]] + advantage]) / ELO_PER_UNIT
        win, draw = (float(share[0]) for share in probabilities(difference, log_draw))
        wins, draws, losses = random.multinomial(MATCH, [win, draw, 1.0 - win - draw])
        found = results.setdefault(pair, Results())
        found.wins, found.draws, found.losses = found.wins + wins, found.draws + draws, found.losses + losses
        standings = rate(PLAYERS, results)
    return Simulation(truth, results, standings)


def covered(simulations: list[Simulation]) -> float:
    """Returns the share of all intervals that hold the true strength."""
    return float(
        np.mean([np.abs(each.standings.ratings - each.truth) <= each.standings.errors for each in simulations])
    )


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("advantage", "log_draw"), [(0.0, -1.0), (100.0, 0.5)])
def test_the_intervals_hold_the_truth(advantage: float, log_draw: float) -> None:
    """On 200 simulated tournaments, which end as soon as the intervals are narrow, 92 to 98 % of them hold the truth."""
    found = [simulate(seed, advantage=advantage, log_draw=log_draw) for seed in range(200)]
    assert 0.92 <= covered(found) <= 0.98
    held = [abs(each.standings.advantage - advantage) <= each.standings.advantage_error for each in found]
    assert np.mean(held) >= 0.9


def test_seats_alternate_and_no_pair_is_favored() -> None:
    """Each pair plays as many games in one seating as in the other, give or take one match, and all players as many."""
    found = simulate(3)
    for (first, second), each in found.results.items():
        other = found.results.get((second, first), Results())
        assert abs(each.games - other.games) <= MATCH
    games = [record.games for record in records(PLAYERS, found.results)]
    assert min(games) >= 2 * MATCH
    assert found.standings.widest <= INTERVAL


def test_a_match_goes_where_it_narrows_most() -> None:
    """A player without games plays next, and among players with games the widest interval decides."""
    results: dict[Pair, Results] = {(0, 1): Results(20, 10, 10), (1, 0): Results(10, 10, 20)}
    standings = rate(3, results)

    def choose(planned: dict[Pair, int], interval: float = 1.0) -> Pair | None:
        return next_pair(standings, results, planned, games=10, interval=interval, may_play=lambda _: True)

    first = choose({})
    assert first is not None
    assert 2 in first
    other = choose({first: 10})
    assert other is not None
    assert 2 in other
    assert set(other) != set(first)
    assert choose({first: 10, other: 10}) == first[::-1], "seats alternate"


def test_a_pair_that_nobody_can_play_is_left_out() -> None:
    """Only pairs that the actor can play are chosen; without any there is none."""
    standings = rate(3, {})
    pair = next_pair(standings, {}, {}, games=1, interval=1.0, may_play=lambda pair: pair == (1, 2))
    assert pair == (1, 2)
    assert next_pair(standings, {}, {}, games=1, interval=1.0, may_play=lambda _: False) is None


def test_the_first_pair_does_not_depend_on_rounding() -> None:
    """At first all pairs are equal, and they are taken in their order."""
    planned: dict[Pair, int] = {}
    order = []
    for _ in range(4):
        pair = next_pair(rate(4, {}), {}, planned, games=10, interval=1.0, may_play=lambda _: True)
        assert pair is not None
        planned[pair] = planned.get(pair, 0) + 10
        order.append(pair)
    assert order == [(0, 1), (2, 3), (0, 2), (1, 3)]


def test_the_advantage_of_a_seat_is_no_strength() -> None:
    """If only the first seat wins, the players are equal and the seat is worth points; draws count as half a win."""
    standings = rate(2, {(0, 1): Results(30, 0, 10), (1, 0): Results(30, 0, 10)})
    np.testing.assert_allclose(standings.ratings, 0.0, atol=1e-6)
    assert standings.advantage > 100
    drawn = rate(2, {(0, 1): Results(0, 20, 0), (1, 0): Results(0, 20, 0)})
    np.testing.assert_allclose(drawn.ratings, 0.0, atol=1e-6)


def test_a_player_without_a_loss_has_a_finite_rating() -> None:
    """The prior keeps it finite, and its interval wide; without games all are equal."""
    standings = rate(2, {(0, 1): Results(50, 0, 0), (1, 0): Results(0, 0, 50)})
    assert 300 < standings.ratings[0] < 1500
    assert standings.errors[0] > 100
    assert standings.order() == [0, 1]
    empty = rate(3, {})
    assert empty.ratings.tolist() == [0.0, 0.0, 0.0]
    assert not narrow_enough(empty, (), 1e9)


def test_results_by_seat() -> None:
    """A loss of the first seat is a win of the second."""
    found = records(2, {(0, 1): Results(3, 2, 1), (1, 0): Results(5, 0, 0)})
    assert (found[0].first, found[0].second) == (Results(3, 2, 1), Results(0, 0, 5))
    assert (found[1].first, found[1].second) == (Results(5, 0, 0), Results(1, 2, 3))
    assert found[0].games == 11
    assert found[0].score == pytest.approx(4 / 11)
