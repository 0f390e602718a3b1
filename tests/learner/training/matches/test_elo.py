"""Tests ML-Agents' rating."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learner.training.matches.elo import DRAW, LOSS, WIN, Elo, expected, rate


def stock(ratings: list[float], games: list[tuple[float, int]]) -> list[float]:
    """Rates games as ML-Agents 1.1.0 does; an independent statement of its rule.

    Args:
        ratings: ``window + 1`` ratings.
        games: Result and slot of the opponent; -1 is the newest policy.
    """
    found = list(ratings)
    for result, slot in games:
        own, opponent = 10 ** (found[-1] / 400), 10 ** (found[slot] / 400)
        change = result - own / (own + opponent)
        found[slot] -= change
        found[-1] += change
    return found


def test_a_row_of_games_equals_the_formula() -> None:
    """The ratings after random games are those of ML-Agents' formula."""
    random = np.random.default_rng(5)
    games = [(float(random.choice([WIN, DRAW, LOSS])), int(random.integers(-1, 4))) for _ in range(400)]
    ratings = [Elo(1200.0) for _ in range(5)]
    for result, slot in games:
        rate(ratings[-1], result, [ratings[slot]])
    assert [each.value for each in ratings] == pytest.approx(stock([1200.0] * 5, games), abs=1e-9)


def test_the_newest_policy_against_itself_changes_nothing() -> None:
    """A game against the own newest policy changes its rating by zero in total."""
    own = Elo(1200.0)
    assert rate(own, WIN, [own]) == 0.5
    assert own.value == 1200.0


@pytest.mark.parametrize("result", [WIN, DRAW, LOSS])
def test_several_opponents_count_as_their_mean(result: float) -> None:
    """Several opponents have the mean of their ratings, and share the change; no points are made."""
    own, others = Elo(1300.0), [Elo(1500.0), Elo(1100.0)]
    change = rate(own, result, others)
    assert change == pytest.approx(result - expected(1300.0, 1300.0))
    assert own.value == 1300.0 + change
    assert [each.value for each in others] == pytest.approx([1500.0 - change / 2, 1100.0 - change / 2])


@pytest.mark.parametrize("own", [-1e9, 0.0, 1e9])
def test_any_ratings_have_an_expectation(own: float) -> None:
    """Expected results are finite and sum to one, however far apart the ratings are."""
    assert expected(own, 0.0) + expected(0.0, own) == pytest.approx(1.0)
    assert math.isfinite(expected(own, 0.0))
