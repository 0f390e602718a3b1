"""How an evaluation is shared out and collected."""

from __future__ import annotations

import pytest

from learner.evaluation.round import Candidate, EvaluationRound
from learner.link.evaluation import EvaluationResult, Order, Played, Spread

BALL = ("Ball", 0)
WALL = ("Wall", 1)


def actor(name: str, *ids: tuple[str, int]) -> Candidate:
    """An actor that has these behavior ids."""
    return Candidate(name, frozenset(ids or (BALL,)))


def examination(episodes: int) -> EvaluationRound:
    """One of the ball."""
    return EvaluationRound(episodes, {"Ball": (1, 5)}, is_deterministic=True)


def sent(orders: list[Order], first: int = 1) -> list[Order]:
    """Numbers orders as the service does."""
    for number, order in enumerate(orders, start=first):
        order.assignment_id = number
    return orders


def play(found: EvaluationRound, order: Order, episodes: int, behavior_id: tuple[str, int] = BALL) -> None:
    """Reports episodes whose return is the number of the order."""
    for _ in range(episodes):
        found.add(behavior_id, order.assignment_id, Played(float(order.assignment_id), 3))


def test_shares_are_equal_and_settled_before_anything_is_played() -> None:
    """Ten among three are four, three and three; more actors than episodes leave some without."""
    orders = examination(10).deal([actor("a"), actor("b"), actor("c")])
    assert [(order.session_id, order.episodes) for order in orders] == [("a", 4), ("b", 3), ("c", 3)]
    assert [order.episodes for order in examination(2).deal([actor("a"), actor("b"), actor("c")])] == [1, 1]


def test_nobody_gets_more_for_being_fast() -> None:
    """What an actor reports beyond its share counts nowhere; the slow one is waited for."""
    found = examination(4)
    fast, slow = sent(found.deal([actor("a"), actor("b")]))
    play(found, fast, 50)
    assert not found.is_done
    assert found.deal([actor("a"), actor("b")]) == []
    play(found, slow, 2)
    assert found.is_done
    assert sorted(episode.total for episode in found.played("Ball")) == [1.0, 1.0, 2.0, 2.0]


def test_what_a_lost_actor_leaves_is_played_by_others() -> None:
    """What it had played stays; the rest goes to whoever is free."""
    found = examination(6)
    lost, other = sent(found.deal([actor("a"), actor("b")]))
    play(found, lost, 1)
    found.lose("a")
    assert found.missing == 2
    assert found.deal([actor("b")]) == []  # busy
    play(found, other, 3)
    (again,) = sent(found.deal([actor("b")]), first=9)
    assert (again.session_id, again.episodes) == ("b", 2)
    play(found, lost, 5)  # late
    play(found, again, 2)
    assert found.is_done
    assert len(found.played("Ball")) == 6


def test_each_behavior_id_plays_the_whole_share() -> None:
    """A share is done when all of its behavior ids are; one that is not measured is no part of it."""
    found = EvaluationRound(2, {"Ball": (1, 5), "Wall": (1, 2)}, is_deterministic=False)
    (order,) = sent(found.deal([actor("a", BALL, WALL)]))
    play(found, order, 2)
    assert not found.is_done
    assert not found.add(("Door", 0), order.assignment_id, Played(1.0, 1))
    play(found, order, 2, WALL)
    assert found.is_done
    assert (len(found.played("Ball")), len(found.played("Wall"))) == (2, 2)


def test_records_of_other_orders_count_nowhere() -> None:
    """Neither those of an older evaluation nor those that name none, before or after the order was sent."""
    found = examination(2)
    (order,) = found.deal([actor("a")])
    assert not found.add(BALL, 0, Played(1.0, 1))
    sent([order], first=7)
    assert not found.add(BALL, 6, Played(1.0, 1))
    assert found.add(BALL, 7, Played(1.0, 1))


def test_an_actor_without_the_behavior_is_asked_for_nothing() -> None:
    """It goes on with what it does."""
    assert examination(3).deal([Candidate("a", frozenset())]) == []


def test_a_result_is_mean_deviation_and_extremes() -> None:
    """By hand: 1, 2 and 6 have the mean 3 and the variance 14/3."""
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
