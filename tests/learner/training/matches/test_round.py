"""Tests how an evaluation is divided among actors."""

from __future__ import annotations

import math
from itertools import count

import pytest

from learner.link.evaluation import Order, Played
from learner.shared.leave_one_out import Source
from learner.training.matches.result import EvaluationResult, Spread
from learner.training.matches.round import Candidate, EvaluationRound

BALL = ("Ball", 0)
WALL = ("Wall", 1)


def actor(name: str, *ids: tuple[str, int]) -> Candidate:
    """Returns an actor with these behavior ids."""
    return Candidate(name, frozenset(ids or (BALL,)))


def examination(episodes: int) -> EvaluationRound:
    """Returns an evaluation of the ball."""
    return EvaluationRound(episodes, {"Ball": (1, 5)}, is_deterministic=True)


def play(found: EvaluationRound, order: Order, episodes: int, behavior_id: tuple[str, int] = BALL) -> None:
    """Reports episodes whose returns number them."""
    for _ in range(episodes):
        found.add(behavior_id, order.number, Played(float(order.number), 3))


def test_shares_are_equal_and_settled_before_anything_is_played() -> None:
    """Shares are equal and fixed at the start; of more actors than episodes some get none."""
    orders = examination(10).deal([actor("a"), actor("b"), actor("c")])
    assert [(order.session_id, order.episodes) for order in orders] == [("a", 4), ("b", 3), ("c", 3)]
    assert [order.episodes for order in examination(2).deal([actor("a"), actor("b"), actor("c")])] == [1, 1]


def test_nobody_gets_more_for_being_fast() -> None:
    """Episodes beyond an actor's share do not count."""
    found = examination(4)
    fast, slow = found.deal([actor("a"), actor("b")])
    play(found, fast, 50)
    assert not found.is_done
    assert found.deal([actor("a"), actor("b")]) == []
    play(found, slow, 2)
    assert found.is_done
    assert sorted(episode.total for episode in found.played("Ball")) == [1.0, 1.0, 2.0, 2.0]


def test_what_a_lost_actor_leaves_is_played_by_others() -> None:
    """The rest of a lost actor's share goes to free actors."""
    found = examination(6)
    lost, other = found.deal([actor("a"), actor("b")])
    play(found, lost, 1)
    found.lose("a")
    assert found.missing == 2
    assert found.deal([actor("b")]) == []  # busy
    play(found, other, 3)
    (again,) = found.deal([actor("b")])
    assert (again.session_id, again.episodes) == ("b", 2)
    play(found, lost, 5)  # late
    play(found, again, 2)
    assert found.is_done
    assert len(found.played("Ball")) == 6


def test_each_behavior_id_plays_the_whole_share() -> None:
    """A share is done when all of its measured behavior ids are."""
    found = EvaluationRound(2, {"Ball": (1, 5), "Wall": (1, 2)}, is_deterministic=False)
    (order,) = found.deal([actor("a", BALL, WALL)])
    play(found, order, 2)
    assert not found.is_done
    assert not found.add(("Door", 0), order.number, Played(1.0, 1))
    play(found, order, 2, WALL)
    assert found.is_done
    assert (len(found.played("Ball")), len(found.played("Wall"))) == (2, 2)


def test_records_of_other_orders_count_nowhere() -> None:
    """Records of other evaluations, or of none, do not count."""
    found = EvaluationRound(2, {"Ball": (1, 5)}, is_deterministic=True, numbers=count(7))
    assert [order.number for order in found.deal([actor("a")])] == [7]
    assert not found.add(BALL, 0, Played(1.0, 1))
    assert not found.add(BALL, 6, Played(1.0, 1))
    assert found.add(BALL, 7, Played(1.0, 1))


def test_an_actor_without_the_behavior_is_asked_for_nothing() -> None:
    """An actor without the behavior gets no share."""
    assert examination(3).deal([Candidate("a", frozenset())]) == []


def test_a_result_is_mean_deviation_and_extremes() -> None:
    """Returns 1, 2 and 6 have the mean 3 and the variance 14/3."""
    spread = Spread.of([1.0, 2.0, 6.0])
    assert (spread.mean, spread.min, spread.max) == (3.0, 1.0, 6.0)
    assert spread.std == pytest.approx((14 / 3) ** 0.5)
    played = [Played(1.0, 10), Played(3.0, 20)]
    result = EvaluationResult.of("Ball", played, step=7, version=2, is_deterministic=True)
    assert result.document() == {
        "behavior": "Ball",
        "step": 7,
        "version": 2,
        "is_deterministic": True,
        "episodes": 2,
        "returns": {"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0},
        "lengths": {"mean": 15.0, "std": 5.0, "min": 10.0, "max": 20.0},
        "is_complete": True,
    }


def test_each_actor_is_left_out_of_the_mean() -> None:
    """The least mean is that without the actor whose omission lowers it most; one actor alone is not left out."""
    found = examination(4)
    ball = frozenset([BALL])
    orders = found.deal([Candidate("a", ball, Source("", 0)), Candidate("b", ball, Source("", 1))])
    for order, value in zip(orders, (1.0, 9e9), strict=True):
        for _ in range(2):
            found.add(BALL, order.number, Played(value, 3))
    assert found.least_mean_return("Ball") == 1.0
    alone = examination(2)
    (order,) = alone.deal([actor("a")])
    play(alone, order, 2)
    assert alone.least_mean_return("Ball") == math.inf
