"""Remembers which matches each session was given, and judges by it what the session sends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import AssignmentRole

from learner.link.matches import Match

OPPONENT: Final = "opponent"
"""Reason in the ledger for rows of a behavior id that acts as an opponent."""
REMEMBERED: Final = 64
"""Most assignments and matches of a session that are remembered. Records of older ones count as outside of matches."""

BehaviorId = tuple[str, int]
"""Name and team."""


class _Given:
    """Matches and assignments of one session, newest last."""

    def __init__(self) -> None:
        self.matches: OrderedDict[int, Mapping[BehaviorId, AssignmentRole]] = OrderedDict()
        self.assignments: OrderedDict[int, int] = OrderedDict()  # match, by id of the assignment


class GivenMatches:
    """The matches of all sessions. For the service's event loop alone."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Given] = {}

    def note(self, session_id: str, assignment: int, match: Match) -> None:
        """Notes that a session is told of a match.

        Args:
            session_id: The session.
            assignment: Id of the assignment.
            match: The match.
        """
        given = self._sessions.setdefault(session_id, _Given())
        given.matches[match.number] = {(seat.behavior, seat.team): seat.role for seat in match.seats}
        given.matches.move_to_end(match.number)
        given.assignments[assignment] = match.number
        for remembered in (given.matches, given.assignments):
            while len(remembered) > REMEMBERED:
                remembered.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Forgets a session that has ended."""
        self._sessions.pop(session_id, None)

    def opponent_segment(self, session_id: str, behavior: str, chunk: Chunk) -> int | None:
        """Returns the first segment of a chunk that was made as an opponent; None if there is none.

        A segment without a known assignment is judged by the newest match.

        Args:
            session_id: Session of the sender.
            behavior: Name of its behavior.
            chunk: The chunk.
        """
        given = self._sessions.get(session_id)
        if given is None or not chunk.segments:
            return None
        column = chunk.columns.get("assignment")
        numbers = [0] if column is None else column.tolist()
        newest = next(reversed(given.matches))
        for place, number in enumerate(numbers):
            match = given.assignments.get(number, newest)
            roles = given.matches.get(match, {})
            if roles.get((behavior, chunk.team)) is AssignmentRole.OPPONENT:
                return place
        return None

    def verify(self, session_id: str, behavior: str, chunk: Chunk) -> None:
        """Clears the match of each episode that the session was not given, or in which it had another role.

        The game record of a match in which the session was not given this seat as an opponent is removed.

        Args:
            session_id: Session of the sender.
            behavior: Name of its behavior.
            chunk: The chunk; its column is replaced.
        """
        given = self._sessions.get(session_id)
        record = chunk.game_record
        if record is not None:
            seats = {} if given is None else given.matches.get(record.match, {})
            if seats.get((behavior, chunk.team)) is not AssignmentRole.OPPONENT:
                chunk.game_record = None
        column = chunk.columns.get("episode/match")
        if column is None:
            return
        roles: NDArray[Any] = chunk.columns.get("episode/role", np.full(chunk.episodes, AssignmentRole.LEARN, np.uint8))
        expected = {
            number: int(seats.get((behavior, chunk.team), AssignmentRole.IDLE))
            for number, seats in ({} if given is None else given.matches).items()
        }
        chunk.columns["episode/match"] = np.array(
            [
                number if expected.get(number) == role else 0
                for number, role in zip(column.tolist(), roles.tolist(), strict=True)
            ],
            np.uint64,
        )
