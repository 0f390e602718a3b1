"""Tests many games of a process: seats that alternate, results, matches against a scripted learner, and resets."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from rollcast import limits
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole, SegmentEnd
from rollcast.v1 import policy_pb2, trajectory_pb2

from actor_client.boards.catalog import make_game
from actor_client.boards.positions import Position
from actor_client.boards.records import BoardGame
from actor_client.boards.table import DRAWN, FIRST_SCORE, Table
from actor_client.rollout.agents.stepping import SteppingLoop
from tests.actor_client.acting import Acting, column, columns, started_link
from tests.actor_client.pettingzoo.harness import segments
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner
from tests.actor_client.unity.test_matches import seats

LEARN, OPPONENT = AssignmentRole.LEARN, AssignmentRole.OPPONENT


def plies(table: Table, rounds: int, numbers: random.Random) -> Iterator[Any]:
    """Plays random legal moves; yields the reports of each ply."""
    for _ in range(rounds):
        reports: Any = table.advance()
        yield reports
        table.act({
            report.team: [int(numbers.choice(np.flatnonzero(mask))) for mask in report.request.asking.masks] for report in reports
        })  # fmt: skip


def test_teams_take_turns_at_moving_first() -> None:
    """Each ply asks one agent of each game; the first mover changes with each game, and half of the games begin so."""
    over: list[tuple[int, Position]] = []
    table = Table(
        make_game("tic_tac_toe"), 6, "Nought", finished=lambda position, first: over.append((first, position))
    )
    first: dict[int, list[int]] = {index: [] for index in range(6)}
    ended: Counter[int] = Counter()
    for reports in plies(table, 60, random.Random(1)):
        asked = sorted(np.concatenate([report.request.asking.ids for report in reports]).tolist())
        assert [identity // 2 for identity in asked] == list(range(6))
        for report in reports:
            assert (report.request.asking.ids % 2 == report.team).all()
            assert (report.request.ended.ids % 2 == report.team).all()
            assert report.request.results.tolist() == report.request.ended.rewards.tolist()
            ended.update((report.request.ended.ids // 2).tolist())
            for row, identity in enumerate(report.request.asking.ids.tolist()):
                if report.request.asking.observations[0][row, 0].sum() == 9:  # nothing stands on the board
                    first[identity // 2].append(report.team)
        assert sorted(reports[0].request.ended.ids // 2) == sorted(reports[1].request.ended.ids // 2)
        assert (reports[0].request.ended.rewards == -reports[1].request.ended.rewards).all()
    for index, teams in first.items():
        assert teams == [(index + game) % 2 for game in range(len(teams))]
        assert len(teams) > 3
    assert len(over) == sum(ended.values()) / 2


def test_statistics_of_first_movers() -> None:
    """A game tells both teams whether its first mover won, and whether it was drawn."""
    over: list[Position] = []
    table = Table(make_game("tic_tac_toe"), 8, "Nought", finished=lambda position, _: over.append(position))
    told = {FIRST_SCORE: 0.0, DRAWN: 0.0}
    for reports in plies(table, 40, random.Random(2)):
        assert reports[0].stats == reports[1].stats
        for name, value, _ in reports[0].stats:
            told[name] += value
    returns = [position.returns[0] for position in over if position.returns is not None]
    assert told[FIRST_SCORE] == sum((each + 1) / 2 for each in returns)
    assert told[DRAWN] == returns.count(0.0)


def test_random_plies_begin_each_game() -> None:
    """Games begin after random moves, which differ and no agent is asked for; a game that they end is begun again."""
    table = Table(make_game("tic_tac_toe"), 50, "Nought", random_plies=8, random_numbers=random.Random(3))
    reports = table.advance()
    stones = [9 - row[0].sum() for report in reports for row in report.request.asking.observations[0]]
    assert stones == [8] * 50
    boards = {row.tobytes() for report in reports for row in report.request.asking.observations[0]}
    assert len(boards) > 5


@contextmanager
def playing(learner: ScriptedLearner) -> Iterator[Acting]:
    """Plays Nim for a learner during a block, once both teams are declared; the books balance at the end."""
    acts = Acting(learner, started_link(learner))
    run = acts.link.open(DEAD_SECONDS)
    loop = SteppingLoop(acts.link, run.assignment, [Table(make_game("nim"), 4, "Ball")])
    with acts.running(loop.run):
        learner.wait_until(lambda: len(learner.declared) >= 2)
        assert {(each.team, each.agents) for each in learner.declared} == {(0, 4), (1, 4)}
        yield acts


def test_both_teams_learn_and_oppose_in_both_seats() -> None:
    """Team 0 learns and team 1 opposes, then the other way round; each game has a winner and is told by both."""
    with ScriptedLearner() as learner:
        learner.awaits = {"Ball"}
        with playing(learner) as acts:
            pinned = acts.keep()
            acts.publish()
            learner.assign(seats(1, 5, pinned))
            learner.wait_until(lambda: column(learner, "episode/match").count(5) >= 60)
            learner.assign(seats(2, 6, pinned, learner_team=1))
            learner.wait_until(lambda: column(learner, "episode/match").count(6) >= 60)
        names = ("match", "team", "role", "result")
        told = Counter(zip(*(column(learner, f"episode/{name}") for name in names), strict=True))
        assert {each[:3] for each in told} == {(5, 0, LEARN), (5, 1, OPPONENT), (6, 0, OPPONENT), (6, 1, LEARN)}
        assert {each[3] for each in told} == {GameResult.WON, GameResult.LOST}
        sent = segments(learner)
        assert {each.env for each in sent} == {0}
        assert {each.rewards[-1] for each in sent if each.end == SegmentEnd.TERMINATED} == {1.0, -1.0}
        assert all(not any(each.rewards[:-1]) for each in sent)
        # The first number of a seat's view is a plane that tells the seat: the learning team had both.
        seen = {row[-1] for chunk in list(learner.chunks) for row in columns(chunk).get("obs/board", [])}
        assert seen == {0.0, 1.0}


def test_a_reset_begins_all_games_again() -> None:
    """A reset that the learner asks for discards the open games; play goes on, and the books balance."""
    with ScriptedLearner() as learner, playing(learner) as acts:
        acts.publish()
        learner.wait_until(lambda: len(segments(learner)) >= 10)
        learner.assign(policy_pb2.Assignment(id=7, reset=policy_pb2.RESET_MODE_NOW))
        learner.wait_until(lambda: sum(acts.link.books()["Ball"].discarded.values()) > 0)
        before = len(segments(learner))
        learner.wait_until(lambda: len(segments(learner)) >= before + 10)
        assert set(acts.link.books()["Ball"].discarded) == {"reset"}


def matches(chunk: trajectory_pb2.Chunk) -> set[int]:
    """Returns the matches of the records of a chunk."""
    return {int(match) for match in columns(chunk).get("episode/match", [])}


def test_games_of_matches_of_opponents_alone_are_recorded() -> None:
    """Both seats send the moves of reported games, which replay to the result that they tell; other matches send none."""
    with ScriptedLearner() as learner:
        learner.awaits = {"Ball"}
        with playing(learner) as acts:
            pinned = acts.keep()
            acts.publish()
            learner.assign(seats(1, 5, pinned))
            learner.wait_until(
                lambda: {chunk.team for chunk in list(learner.chunks) if matches(chunk) == {5}} == {0, 1}
            )
            alone = seats(2, 6, pinned, learner_team=2)
            alone.episodes, alone.reset = 6, policy_pb2.RESET_MODE_NOW
            learner.assign(alone)
            learner.wait_until(lambda: column(learner, "episode/match").count(6) == 12)
        chunks = [chunk for chunk in list(learner.chunks) if chunk.HasField("game_record")]
        assert {chunk.team for chunk in chunks} == {0, 1}
        for chunk in chunks:
            record = chunk.game_record
            assert (record.match, record.game, chunk.episodes > 0) == (6, "nim", True)
            position = make_game("nim").start()
            for move in record.moves.split("\n"):
                position.play(position.read_move(move))
            assert position.returns is not None
            assert record.result == position.returns[0]
            seat = chunk.team ^ record.first_team
            assert position.returns[seat] in columns(chunk)["episode/result"]


def test_a_game_beyond_the_limits_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner would refuse the chunk."""
    position = make_game("tic_tac_toe").start()
    for _ in range(2):
        position.play(int(position.legal[0]))
    game = BoardGame(position, 1)
    assert game.record(7) == GameRecord(7, "tic_tac_toe", 1, GameResult.UNKNOWN, ("x(0,0)", "o(0,1)"))
    for name, most in (("MAX_RECORD_MOVES", 1), ("MAX_RECORD_CHARACTERS", 12), ("MOVE_PATTERN", re.compile("x.*"))):
        with monkeypatch.context() as changed:
            changed.setattr(limits, name, most)
            assert game.record(7) is None
