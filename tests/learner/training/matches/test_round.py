"""Tests how an evaluation is divided among actors, with and without opponents, and which games count."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole

from learner.link.matches import Match, match_numbers
from learner.shared.leave_one_out import Source
from learner.shared.policies import PolicyKey
from learner.training.matches.rating import Results
from learner.training.matches.result import EvaluationResult, Spread
from learner.training.matches.round import Candidate, Round
from tests.learner.training.matches.games import episode, evaluated, reported

BALL = ("Ball", 0)
WALL = ("Wall", 1)


def actor(name: str, *ids: tuple[str, int]) -> Candidate:
    """Returns an actor with these behavior ids."""
    return Candidate(name, frozenset(ids or (BALL,)))


def examination(episodes: int, *names: str, first: int = 1) -> Round:
    """Returns an evaluation of the ball, or of several behaviors."""
    policies = dict.fromkeys(names or ("Ball",), PolicyKey(1, 5, b""))
    return Round(policies, episodes, is_deterministic=True, numbers=count(first))


def play(
    found: Round, match: Match, episodes: int, behavior_id: tuple[str, int] = BALL, value: float | None = None
) -> bool:
    """Reports episodes whose returns number them; returns whether they count."""
    returns = [float(match.number) if value is None else value] * episodes
    return found.received(behavior_id[0], evaluated(match, *returns, behavior_id=behavior_id))


def test_shares_are_equal_and_settled_before_anything_is_played() -> None:
    """Shares are equal and fixed at the start; of more actors than episodes some get none."""
    orders = examination(10).deal([actor("a"), actor("b"), actor("c")])
    assert [(match.session_id, match.episodes) for match in orders] == [("a", 4), ("b", 3), ("c", 3)]
    assert [match.episodes for match in examination(2).deal([actor("a"), actor("b"), actor("c")])] == [1, 1]


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
    found.settle({"b"})
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
    found = examination(2, "Ball", "Wall")
    (match,) = found.deal([actor("a", BALL, WALL)])
    play(found, match, 2)
    assert not found.is_done
    assert not play(found, match, 1, ("LocalListener", 0))
    play(found, match, 2, WALL)
    assert found.is_done
    assert (len(found.played("Ball")), len(found.played("Wall"))) == (2, 2)


def test_records_of_other_orders_count_nowhere() -> None:
    """Records of other evaluations or sessions, or of none, do not count."""
    found = examination(2, first=7)
    (match,) = found.deal([actor("a")])
    assert match.number == 7
    for number in (0, 6):
        assert not play(found, replace(match, number=number), 1)
    assert not play(found, replace(match, session_id="b"), 1)
    assert play(found, match, 1)


def test_an_actor_without_the_behavior_is_asked_for_nothing() -> None:
    """An actor without the behavior gets no share."""
    assert examination(3).deal([Candidate("a", frozenset())]) == []


def test_a_result_is_mean_deviation_and_extremes() -> None:
    """Returns 1, 2 and 6 have the mean 3 and the variance 14/3."""
    spread = Spread.of([1.0, 2.0, 6.0])
    assert (spread.mean, spread.min, spread.max) == (3.0, 1.0, 6.0)
    assert spread.std == pytest.approx((14 / 3) ** 0.5)
    played = [episode(1.0, 10), episode(3.0, 20)]
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
        play(found, order, 2, value=value)
    assert found.least_mean_return("Ball") == 1.0
    alone = examination(2)
    (order,) = alone.deal([actor("a")])
    play(alone, order, 2)
    assert alone.least_mean_return("Ball") == math.inf


NAME = "Board"
WON, DRAWN, LOST = GameResult.WON, GameResult.DRAWN, GameResult.LOST
NEWEST, RANDOM, MODEL = (PolicyKey(1, number, bytes([number]) * 32) for number in range(3))


def players(*names: str) -> list[Candidate]:
    """Returns actors with both teams."""
    ids = frozenset({(NAME, 0), (NAME, 1)})
    return [Candidate(name, ids, Source("", place)) for place, name in enumerate(names)]


def games_round(games: int = 4, *opponents: PolicyKey, deterministic: bool = True) -> Round:
    """Returns an evaluation of the newest policy."""
    return Round(
        {NAME: NEWEST},
        games,
        is_deterministic=deterministic,
        numbers=match_numbers(1, evaluates=True),
        opponents=opponents or (RANDOM,),
    )


def report(
    found: Round,
    match: Match,
    /,
    *results: GameResult,
    team: int = 0,
    record: GameRecord | None = None,
    **columns: Any,
) -> bool:
    """Reports games as the actor of a match."""
    seat = next(seat for seat in match.seats if seat.team == team)
    return found.received(seat.behavior, reported(match, seat, results, record=record, **columns))


def test_the_policy_plays_half_of_the_games_in_each_seat() -> None:
    """Each opponent is met in two matches; only the policy under evaluation plays its most likely actions."""
    found = games_round(5, RANDOM, MODEL)
    assert (found.episodes, found.missing) == (10, 10)
    matches = []
    while found.missing:
        (match,) = found.deal(players("a"))
        assert found.deal(players("a")) == []  # it plays
        matches.append(match)
        report(found, match, *[WON] * match.episodes, team=0 if match.seats[0].policy == NEWEST else 1)
    assert found.is_done
    assert [[seat.policy for seat in match.seats] for match in matches] == [
        [NEWEST, RANDOM],
        [RANDOM, NEWEST],
        [NEWEST, MODEL],
        [MODEL, NEWEST],
    ]
    assert [match.episodes for match in matches] == [3, 2, 3, 2]
    assert len({match.number for match in matches}) == 4
    for match in matches:
        assert all(seat.is_deterministic is (seat.policy == NEWEST) for seat in match.seats)
        assert all(seat.role is AssignmentRole.OPPONENT for seat in match.seats)
        assert match.random_steps == 1
    assert [(each.name, each.first, each.second) for each in found.results(["random", "model"])] == [
        ("random", Results(3, 0, 0), Results(2, 0, 0)),
        ("model", Results(3, 0, 0), Results(2, 0, 0)),
    ]


def test_the_reports_of_the_policys_seat_count() -> None:
    """Records of the other seat, of other matches and beyond the match's games are ignored."""
    found = games_round(4)
    (first,) = found.deal(players("a"))
    assert not report(found, first, LOST, LOST, team=1)
    assert not report(found, first, LOST, LOST, match=[7, 7])
    assert report(found, first, WON, DRAWN, LOST)
    (second,) = found.deal(players("a"))
    assert report(found, second, LOST, LOST, team=1)
    (result,) = found.results(["random"])
    assert (result.first, result.second) == (Results(1, 1, 0), Results(0, 0, 2))
    assert result.score == pytest.approx(0.375)
    assert [episode.total for episode in found.played(NAME)] == [1.0, 0.0, -1.0, -1.0]


def test_the_match_of_a_lost_actor_is_played_again_as_a_whole() -> None:
    """Short games are the first to end, so those of an unfinished match do not count."""
    found = games_round(4)
    first, second = found.deal(players("a", "b"))
    report(found, first, WON)
    report(found, second, LOST, LOST, team=1)
    found.settle(())
    assert (found.missing, len(found.played(NAME))) == (2, 2)
    (again,) = found.deal(players("b"))
    assert again.number not in {first.number, second.number}
    report(found, again, DRAWN, DRAWN)
    assert found.is_done
    assert found.results(["random"])[0].first == Results(0, 2, 0)
    assert found.least_mean_return(NAME) == -1.0  # without those of the first actor


def test_numbers_of_evaluations_and_training_differ() -> None:
    """The matches of training, of evaluations and of another start never share a number."""
    starts = [match_numbers(generation, evaluates=evaluates) for generation in (1, 2) for evaluates in (False, True)]
    found = [next(numbers) for numbers in starts for _ in range(1000)]
    assert len(set(found)) == len(found)
