"""Tests ratings and their intervals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from learner.training.matches.elo import DRAW, LOSS, WIN
from learner.training.matches.rating import (
    ELO_PER_UNIT,
    INTERVAL,
    STEP_ELO,
    RatedPlayer,
    Results,
    Strengths,
    by_seat,
    rate,
)


def row(players: int, name: str = "A") -> Strengths:
    """Returns a row of players without games."""
    strengths = Strengths()
    strengths.add_row(name, 1200.0)
    for _ in range(players - 1):
        strengths.advance(name, 100)
    return strengths


def play(strengths: Strengths, first: RatedPlayer, second: RatedPlayer, results: tuple[int, int, int]) -> None:
    """Adds games: wins, draws and losses of the first player."""
    for result, games in zip((WIN, DRAW, LOSS), results, strict=True):
        for _ in range(games):
            strengths.add(first, second, result)


def log_posterior(values: list[float], log_draw: float, games: dict[tuple[int, int], tuple[int, int, int]]) -> float:
    """Returns the logarithm of the posterior density as the model states it, up to a constant."""
    total = -(((values[0] - 1200.0) / 1.0) ** 2) / 2
    total -= sum(((later - earlier) / STEP_ELO) ** 2 / 2 for earlier, later in pairwise(values))
    strengths = [math.exp(value / ELO_PER_UNIT) for value in values]
    nu = math.exp(log_draw)
    total += math.log(nu / (2 + nu)) + 2 * math.log(2 / (2 + nu))
    for (first, second), (wins, draws, losses) in games.items():
        own, other = strengths[first], strengths[second]
        tie = nu * math.sqrt(own * other)
        sum_ = own + other + tie
        total += wins * math.log(own / sum_) + draws * math.log(tie / sum_) + losses * math.log(other / sum_)
    return total


def test_the_estimate_is_the_mode_of_the_stated_model() -> None:
    """No small change of a strength raises the posterior density, with the best draw parameter for each."""
    games = {(1, 0): (14, 3, 5), (2, 0): (20, 2, 1), (2, 1): (9, 6, 4)}
    strengths = row(3)
    for (first, second), results in games.items():
        play(strengths, ("A", first), ("A", second), results)
    values = [strengths.ratings()["A", number].value for number in range(3)]

    def best(at: list[float]) -> float:
        return max(log_posterior(at, log_draw, games) for log_draw in np.linspace(-3, 1, 4001))

    top = best(values)
    for place in range(3):
        for change in (-2.0, 2.0):
            moved = [value + change * (number == place) for number, value in enumerate(values)]
            assert best(moved) < top + 1e-6


def test_an_interval_is_that_of_the_normal_approximation() -> None:
    """Half of a 95 % interval is 1.96 deviations: roots of the inverse of the negative second derivatives at the mode."""
    games = {(1, 0): (14, 3, 5)}
    strengths = row(2)
    play(strengths, ("A", 1), ("A", 0), games[1, 0])
    ratings = [strengths.ratings()["A", number] for number in range(2)]
    values = [rating.value for rating in ratings]
    draw = max(np.linspace(-3, 1, 40_001), key=lambda log_draw: log_posterior(values, log_draw, games))
    steps = np.diag([0.5, 0.5, 0.01])

    def at(*moves: float) -> float:
        place = np.array([*values, draw]) + np.array(moves) @ steps
        return log_posterior(place[:2].tolist(), place[2], games)

    unit = np.eye(3)
    second = [[at(*(a + b)) - at(*(a - b)) - at(*(b - a)) + at(*(-a - b)) for b in unit] for a in unit]
    information = -np.array(second) / 4 / np.outer(np.diag(steps), np.diag(steps))
    deviations = np.sqrt(np.diag(np.linalg.inv(information)))
    assert [rating.error for rating in ratings] == pytest.approx((1.96 * deviations[:2]).tolist(), rel=1e-3)


def test_winners_are_stronger_and_intervals_shrink() -> None:
    """More wins mean a higher rating, more games a smaller interval, and exchanged results exchanged signs."""
    few, many, lost = row(2), row(2), row(2)
    play(few, ("A", 1), ("A", 0), (6, 2, 2))
    play(many, ("A", 1), ("A", 0), (60, 20, 20))
    play(lost, ("A", 1), ("A", 0), (2, 2, 6))
    rated = few.ratings()["A", 1]
    assert 1200.0 < rated.value < many.ratings()["A", 1].value
    assert many.ratings()["A", 1].error < rated.error < INTERVAL * STEP_ELO
    assert lost.ratings()["A", 1].value - 1200.0 == pytest.approx(1200.0 - rated.value, abs=1e-6)


def test_an_undefeated_player_has_a_finite_rating() -> None:
    """Wins alone give a finite rating above all others."""
    strengths = row(3)
    play(strengths, ("A", 2), ("A", 0), (500, 0, 0))
    rating = strengths.ratings()["A", 2]
    assert 1400.0 < rating.value < 4000.0
    assert math.isfinite(rating.error)


def test_two_rows_meet() -> None:
    """In an asymmetric game, players of two rows are rated by their games; a game of three counts in shares."""
    strengths = row(2, "Striker")
    strengths.add_row("Goalie", 1200.0)
    for _ in range(30):
        strengths.add(("Striker", 1), ("Goalie", 0), WIN, 0.5)
    ratings = strengths.ratings()
    assert ratings["Striker", 1].value > ratings["Striker", 0].value > ratings["Goalie", 0].value


def test_forgotten_players_stay_as_fixed_opponents() -> None:
    """The rating of a kept player hardly changes when its opponent is forgotten, and memory is bounded."""
    strengths = row(1)
    for number in range(1, 60):
        strengths.advance("A", 4)
        before = strengths.ratings()["A", number].value
        for opponent in range(max(0, number - 6), number):
            play(strengths, ("A", number), ("A", opponent), (12, 4, 8))
        assert strengths.ratings()["A", number].value > before
    state = strengths.state_dict()
    assert len(strengths.ratings()) == 4
    assert len(state["fixed"]) <= 8
    assert len(state["results"]) <= 28
    rating = strengths.ratings()["A", 58].value
    strengths.advance("A", 4)
    assert strengths.ratings()["A", 58].value == pytest.approx(rating, abs=25.0)


def test_a_state_continues() -> None:
    """Restored strengths are the saved ones, and stay equal with further games."""
    strengths, restored = row(5), Strengths()
    play(strengths, ("A", 4), ("A", 2), (5, 1, 2))
    strengths.advance("A", 3)
    restored.load_state_dict(strengths.state_dict())
    for each in (strengths, restored):
        play(each, ("A", 5), ("A", 4), (2, 1, 0))
    for player, rating in strengths.ratings().items():
        assert restored.ratings()[player].value == pytest.approx(rating.value, abs=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [["A", 3, 3, 0.0, 1.0]]},
        {"rows": [["A", 0, 3, math.inf, 1.0]]},
        {"results": [["A", 1, "B", 0, 1.0, 1.0, 1.0]]},
        {"results": [["A", 1, "A", 0, -1.0, 1.0, 1.0]]},
        {"fixed": [["A", 1]]},
        {"results": 3},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, object]) -> None:
    """A state with impossible values is refused."""
    state = {**row(3).state_dict(), **change}
    with pytest.raises((TypeError, ValueError)):
        Strengths().load_state_dict(state)


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


def test_results_by_seat() -> None:
    """A loss of the first seat is a win of the second."""
    found = by_seat(("one", "two"), {(0, 1): Results(3, 2, 1), (1, 0): Results(5, 0, 0)})
    assert (found[0].first, found[0].second) == (Results(3, 2, 1), Results(0, 0, 5))
    assert (found[1].first, found[1].second) == (Results(5, 0, 0), Results(1, 2, 3))
    assert found[0].games == 11
    assert found[0].score == pytest.approx(4 / 11)
