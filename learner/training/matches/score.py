"""Counts the games of a match of opponents alone, as one of its seats reports them."""

from __future__ import annotations

from typing import Final

from rollcast.chunks import GameRecord

from learner.link.evaluation import Played
from learner.link.matches import Match, games_of
from learner.link.to_trainers import Actor, Experience
from learner.training.matches.self_play_games import RESULTS, GameCounter
from learner.training.matches.strength import Results

TEAMS: Final = 2
"""Teams of a behavior whose games are between two players."""


class MatchScore:
    """The games of a match, as far as they were reported.

    Args:
        match: The match, which limits its episodes.
        seat: Place of the seat whose reports count.

    Attributes:
        match: The match.
        played: Episodes of the seat's agents.
        results: Results of the games, as seen by the seat.
        record: The newest game record of the seat; None before the first.
    """

    def __init__(self, match: Match, seat: int = 0) -> None:
        self.match = match
        self.played: list[Played] = []
        self.results = Results()
        self.record: GameRecord | None = None
        self._seat = match.seats[seat]

    @property
    def is_over(self) -> bool:
        """True if all episodes were reported."""
        return len(self.played) >= self.match.episodes

    def add(self, behavior: str, item: Experience, counter: GameCounter) -> int:
        """Counts the games of a chunk of the match's session.

        Args:
            behavior: Name of the chunk's behavior.
            item: The chunk.
            counter: Tells which records are the first of their games.

        Returns:
            Number of new episodes.
        """
        before = len(self.played)
        if behavior != self._seat.behavior:
            return 0
        record = item.chunk.game_record
        if record is not None and record.match == self.match.number and item.chunk.team == self._seat.team:
            self.record = record
        for game in games_of(behavior, item.chunk):
            if game.match != self.match.number or game.team != self._seat.team or self.is_over:
                continue
            self.played.append(Played(game.total, game.length))
            result = RESULTS.get(game.result)
            if result is not None and not game.has_mates_left and counter.is_first(item.session_id, game):
                self.results.add(result)
        return len(self.played) - before


def plays_games(actor: Actor, index: int) -> bool:
    """Returns whether an actor has two teams of a behavior and nothing else.

    Args:
        actor: The actor.
        index: Index of the behavior.
    """
    return set(actor.teams) == {index} and len(actor.teams[index]) == TEAMS


def plays_policies(actor: Actor) -> bool:
    """Returns whether an actor plays each seat that names a policy by that policy.

    One with a script of an earlier build plays all opponents by its script.
    """
    return not actor.opponent or actor.opponent_by_seat
