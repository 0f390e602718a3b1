"""Tests how records of episodes become games."""

from __future__ import annotations

from typing import Any

import numpy as np
from rollcast.chunks import Chunk, GameResult
from rollcast.enums import AssignmentRole, Purpose, SegmentEnd

from learner.link.matches import games_of


def records(count: int, **columns: Any) -> Chunk:
    """Returns a chunk with only records, of team 1."""
    required: dict[str, Any] = {
        "return": np.arange(count, dtype=np.float32),
        "length": np.full(count, 9, np.uint32),
        "end": np.full(count, SegmentEnd.TRUNCATED, np.uint8),
        "agent": np.full(count, 3, np.uint64),
        "env": np.full(count, 2, np.uint32),
    }
    told = required | {name: np.asarray(values) for name, values in columns.items()}
    return Chunk(team=1, episodes=count, columns={f"episode/{name}": array for name, array in told.items()})


def test_records_with_a_match_are_games() -> None:
    """Each record with a match is a game with role, result and group; the return includes the group's."""
    chunk = records(
        3,
        match=[0, 21, 22],
        role=[1, 1, 2],
        result=[1, -1, 127],
        group_return=np.asarray([0, 10, 20], np.float32),
        group=[0, 5, 0],
        group_episode=[0, 6, 0],
    )
    first, second = games_of("Tennis", chunk)
    assert (first.match, first.behavior, first.team, first.total, first.length) == (21, "Tennis", 1, 11.0, 9)
    assert (first.role, first.result, first.end) == (AssignmentRole.LEARN, GameResult.LOST, SegmentEnd.TRUNCATED)
    assert (first.group, first.group_episode) == (5, 6)
    assert (second.match, second.role, second.result) == (22, AssignmentRole.OPPONENT, GameResult.UNKNOWN)
    assert second.total == 22.0


def test_what_is_not_reported_is_unknown() -> None:
    """A record with only a match is a game of unknown result of a learning agent."""
    (game,) = games_of("Tennis", records(1, match=[4]))
    assert (game.role, game.result, game.group) == (AssignmentRole.LEARN, GameResult.UNKNOWN, 0)


def test_other_episodes_are_no_games() -> None:
    """Episodes without match, and demonstrations, are no games."""
    assert games_of("Tennis", records(2)) == []
    assert games_of("Tennis", records(2, match=[0, 0])) == []
    assert games_of("Tennis", records(1, purpose=[Purpose.TRAIN])) == []
    assert games_of("Tennis", records(1, match=[4], purpose=[Purpose.DEMO], assignment=[5])) == []


def test_evaluated_episodes_count_under_the_number_of_their_order() -> None:
    """The return includes the group's; whatever match such a record claims, it is none of it."""
    columns = {"purpose": [Purpose.EVALUATE, Purpose.TRAIN, Purpose.EVALUATE], "group_return": [5.0, 6.0, 7.0]}
    first, second = games_of("Tennis", records(3, assignment=[2**40 + 1, 8, 0], **columns))
    assert (first.match, first.total, first.length, first.team) == (2**40 + 1, 5.0, 9, 1)
    assert (second.match, second.total) == (0, 9.0)
    claimed = games_of("Tennis", records(3, match=[4, 5, 6], assignment=[9, 9, 0], **columns))
    assert [game.match for game in claimed] == [9, 5, 0]
    assert [game.match for game in games_of("Tennis", records(1, purpose=[Purpose.EVALUATE]))] == [0]
