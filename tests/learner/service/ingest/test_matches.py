"""Tests what a session may send in matches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole
from rollcast.trajectories import Chunk

from learner.link.matches import Match, Seat
from learner.service.ingest.matches import REMEMBERED, GivenMatches
from tests.learner.service.calls.samples import NAME, make_chunk

LEARN, OPPONENT = AssignmentRole.LEARN, AssignmentRole.OPPONENT


def match(number: int, *roles: AssignmentRole, session_id: str = "s") -> Match:
    """Returns a match with one team for each role."""
    return Match(number, session_id, tuple(Seat(NAME, team, role) for team, role in enumerate(roles)))


def given() -> GivenMatches:
    """Returns matches 21 and 22 under the assignments 5 and 6; the roles change between them."""
    matches = GivenMatches()
    matches.note("s", 5, match(21, LEARN, OPPONENT))
    matches.note("s", 6, match(22, OPPONENT, LEARN))
    return matches


def rows(team: int, assignment: int | None) -> Chunk:
    """Returns a segment of a team."""
    chunk = make_chunk(3, team=team)
    if assignment is not None:
        chunk.columns["assignment"] = np.array([assignment], np.uint64)
    return chunk


@pytest.mark.parametrize(
    ("team", "assignment", "is_opponent"),
    [
        (0, 5, False),  # was made before the roles changed, and sent after it
        (0, 6, True),
        (1, 5, True),
        (1, 6, False),
        (0, None, True),
        (1, None, False),
        (0, 99, True),  # an unknown assignment is judged by the newest
        (1, 0, False),
        (2, 6, False),
    ],
)
def test_rows_are_judged_by_their_assignment(team: int, assignment: int | None, *, is_opponent: bool) -> None:
    """Rows that were made as an opponent are found, also after another match has begun."""
    place = given().opponent_segment("s", NAME, rows(team, assignment))
    assert place == (0 if is_opponent else None)


def test_a_session_without_matches_is_not_judged() -> None:
    """Other sessions, forgotten ones, and chunks without rows are not judged."""
    matches = given()
    assert matches.opponent_segment("other", NAME, rows(0, 6)) is None
    assert matches.opponent_segment("s", NAME, make_chunk(0, segments=0)) is None
    matches.forget("s")
    assert matches.opponent_segment("s", NAME, rows(0, 6)) is None


def records(team: int, told: list[int], roles: list[int] | None) -> Any:
    """Returns the matches of records after they were verified."""
    chunk = make_chunk(0, segments=0, team=team, episodes=len(told))
    chunk.columns = {"episode/match": np.array(told, np.uint64)}
    if roles is not None:
        chunk.columns["episode/role"] = np.array(roles, np.uint8)
    given().verify("s", NAME, chunk)
    return chunk.columns["episode/match"].tolist()


def test_records_keep_only_matches_that_were_given() -> None:
    """A match that was not given, or in another role, is cleared; without a role, the agent learned."""
    assert records(0, [21, 22, 23, 0], [LEARN, OPPONENT, LEARN, LEARN]) == [21, 22, 0, 0]
    assert records(0, [21, 22], [OPPONENT, LEARN]) == [0, 0]
    assert records(0, [21, 22], None) == [21, 0]
    assert records(7, [21], [LEARN]) == [0]
    chunk = make_chunk(0, segments=0, episodes=1)
    chunk.columns = {"episode/match": np.array([21], np.uint64)}
    given().verify("other", NAME, chunk)
    assert chunk.columns["episode/match"].tolist() == [0]


@pytest.mark.parametrize(
    ("session", "team", "number", "is_kept"),
    [
        ("s", 1, 21, True),
        ("s", 0, 22, True),
        ("s", 0, 21, False),
        ("s", 2, 21, False),
        ("s", 1, 23, False),
        ("other", 1, 21, False),
    ],
)
def test_a_game_record_is_of_a_match_that_was_given(session: str, team: int, number: int, *, is_kept: bool) -> None:
    """A game record of another match, another seat or another session is removed, with or without episodes."""
    chunk = make_chunk(0, segments=0, team=team)
    record = chunk.game_record = GameRecord(number, "hex", 0, GameResult.WON, ("a1",))
    given().verify(session, NAME, chunk)
    assert chunk.game_record == (record if is_kept else None)


def test_a_bounded_number_is_remembered() -> None:
    """Old matches are forgotten, so that a long session does not grow."""
    matches = GivenMatches()
    for number in range(1, 3 * REMEMBERED):
        matches.note("s", number, match(number, LEARN, OPPONENT))
    remembered = matches._sessions["s"]
    assert len(remembered.matches) == len(remembered.assignments) == REMEMBERED
    assert matches.opponent_segment("s", NAME, rows(1, 1)) == 0
