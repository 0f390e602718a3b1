"""Tests how the games of an evaluation against opponents are given to actors, and which of them count."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole

from learner.link.evaluation import Order
from learner.link.matches import Match, match_numbers
from learner.shared.leave_one_out import Source
from learner.shared.policies import PolicyKey
from learner.training.matches.games import GamesRound
from learner.training.matches.round import Candidate
from learner.training.matches.strength import Results
from tests.learner.training.matches.games import reported

NAME = "Board"
WON, DRAWN, LOST = GameResult.WON, GameResult.DRAWN, GameResult.LOST
NEWEST, RANDOM, MODEL = (PolicyKey(1, number, bytes([number]) * 32) for number in range(3))


def players(*names: str) -> list[Candidate]:
    """Returns actors with both teams."""
    ids = frozenset({(NAME, 0), (NAME, 1)})
    return [Candidate(name, ids, Source("", place)) for place, name in enumerate(names)]


def games_round(games: int = 4, *opponents: PolicyKey, deterministic: bool = True) -> GamesRound:
    """Returns an evaluation of the newest policy."""
    return GamesRound(
        NAME,
        NEWEST,
        opponents or (RANDOM,),
        games,
        is_deterministic=deterministic,
        orders=count(1),
        matches=match_numbers(1, evaluates=True),
        on_match=lambda *_: None,
    )


def match_of(order: Order) -> Match:
    """Returns the match of an order."""
    assert order.match is not None
    return order.match


def report(
    found: GamesRound,
    order: Order,
    *results: GameResult,
    team: int = 0,
    record: GameRecord | None = None,
    **columns: Any,
) -> bool:
    """Reports games as the actor of an order."""
    match = match_of(order)
    seat = next(seat for seat in match.seats if seat.team == team)
    return found.received(NAME, reported(match, seat, results, record=record, **columns))


def test_the_policy_plays_half_of_the_games_in_each_seat() -> None:
    """Each opponent is met in two matches; only the policy under evaluation plays its most likely actions."""
    found = games_round(5, RANDOM, MODEL)
    assert (found.episodes, found.missing) == (10, 10)
    orders = []
    while found.missing:
        (order,) = found.deal(players("a"))
        assert found.deal(players("a")) == []  # it plays
        orders.append(order)
        report(found, order, *[WON] * order.episodes, team=0 if match_of(order).seats[0].policy == NEWEST else 1)
    assert found.is_done
    matches = [match_of(order) for order in orders]
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
    found.lose("a")
    found.lose("b")
    assert (found.missing, len(found.played(NAME))) == (2, 2)
    (again,) = found.deal(players("b"))
    assert match_of(again).number not in {match_of(first).number, match_of(second).number}
    report(found, again, DRAWN, DRAWN)
    assert found.is_done
    assert found.results(["random"])[0].first == Results(0, 2, 0)
    assert found.least_mean_return(NAME) == -1.0  # without those of the first actor


def test_numbers_of_evaluations_and_training_differ() -> None:
    """The matches of training, of evaluations and of another start never share a number."""
    starts = [match_numbers(generation, evaluates=evaluates) for generation in (1, 2) for evaluates in (False, True)]
    found = [next(numbers) for numbers in starts for _ in range(1000)]
    assert len(set(found)) == len(found)
