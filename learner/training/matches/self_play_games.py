"""Remembers the matches of all actors, and finds the opponents of each finished game."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from learner.link.matches import Match
from learner.shared.policies import PolicyKey
from learner.training.matches.rating import RatedPlayer

KEPT_MATCHES: Final = 64
"""Matches remembered of each session: games of older ones are not rated. Between two draws of opponents an actor may
finish no game, because the draws follow the ghost steps of all actors."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """An opponent of a match.

    Attributes:
        behavior: Name of its behavior.
        team: Its team.
        number: Number of the snapshot that plays; None for the newest policy, and for an opponent that never learns.
        player: The player in `learner.training.matches.rating.Strengths`.
        step: Trained steps of its behavior when the policy was saved; when the match began, for the newest policy.
        key: The policy; None for the newest, and for a script.
        fixed: Row of an opponent that never learns (`learner.training.matches.fixed`); empty for others.
    """

    behavior: str
    team: int
    number: int | None
    player: RatedPlayer
    step: int
    key: PolicyKey | None = None
    fixed: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A match of one actor.

    Attributes:
        match: The match.
        opponents: Its opponents.
    """

    match: Match
    opponents: tuple[Drawn, ...]


class Tables:
    """The newest matches of all sessions."""

    def __init__(self) -> None:
        self._by_number: dict[int, Table] = {}
        self._by_session: dict[str, deque[int]] = {}

    @property
    def newest(self) -> Iterator[Table]:
        """Yields the present match of each session."""
        for numbers in self._by_session.values():
            yield self._by_number[numbers[-1]]

    def of_session(self, session_id: str) -> Table | None:
        """Returns the present match of a session; None before its first."""
        numbers = self._by_session.get(session_id)
        return self._by_number[numbers[-1]] if numbers else None

    def find(self, session_id: str, number: int) -> Table | None:
        """Returns a match that its session was given; None for any other."""
        table = self._by_number.get(number)
        return table if table is not None and table.match.session_id == session_id else None

    def add(self, table: Table) -> None:
        """Adds the present match of a session."""
        numbers = self._by_session.setdefault(table.match.session_id, deque())
        numbers.append(table.match.number)
        self._by_number[table.match.number] = table
        if len(numbers) > KEPT_MATCHES:
            del self._by_number[numbers.popleft()]

    def keep(self, session_ids: Collection[str]) -> None:
        """Forgets the matches of sessions that have ended.

        Args:
            session_ids: Sessions that have not ended.
        """
        for session_id in self._by_session.keys() - session_ids:
            for number in self._by_session.pop(session_id):
                del self._by_number[number]
