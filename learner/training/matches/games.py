"""The games of matches, as the actors that play them report them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rollcast.chunks import GameRecord, GameResult

from learner.link.matches import Game, Match, games_of
from learner.link.to_trainers import Actor, Experience
from learner.shared.leave_one_out import Source
from learner.training.matches.elo import DRAW, LOSS, WIN
from learner.training.matches.rating import Results

BehaviorId = tuple[str, int]
"""Name and team."""

TEAMS: Final = 2
"""Teams of a behavior whose games are between two players."""
KEPT_GROUPS: Final = 4096
"""Groups of which the last rated game is remembered, so that a game of several agents counts once."""
RESULTS: Final[Mapping[GameResult, float]] = {
    GameResult.WON: WIN,
    GameResult.DRAWN: DRAW,
    GameResult.LOST: LOSS,
}


class GameCounter:
    """Tells which records of ended games are the first, so that each game counts once.

    Agents of one group report the same game; the first record that tells its end counts. Without groups, each agent plays
    its own game.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[str, str, int], int] = OrderedDict()

    def is_first(self, session_id: str, game: Game) -> bool:
        """Returns whether a record is the first of its game.

        Args:
            session_id: Session that sent the record.
            game: The record.
        """
        if not game.group:
            return True
        key = session_id, game.behavior, game.group
        is_first = self._groups.get(key) != game.group_episode
        self._groups[key] = game.group_episode
        self._groups.move_to_end(key)
        if len(self._groups) > KEPT_GROUPS:
            self._groups.popitem(last=False)
        return is_first


@dataclass(slots=True, eq=False)
class Playing:
    """A match of a limited number of episodes, and what its actor has reported of it.

    The episodes of a match with seats count as a whole, because short games are the first to end; those of an evaluation
    without opponents count one by one.

    Attributes:
        match: The match.
        place: Places of the players in the first and the second seat, or of the opponent and the seat in an evaluation.
        seat: Place of the seat whose reports count, in a match with seats.
        source: The actor, as a source of returns.
        actor: Name of the actor.
        heard_at: When the end of an episode was last reported, in monotonic seconds.
        played: Reported episodes by behavior id, of those whose reports count.
        episodes: Episodes of each behavior id that count; fewer than the match's once its actor is lost.
        results: Results of the games, as seen by the seat.
        record: The newest game record of the seat; None before the first.
    """

    match: Match
    place: tuple[int, int] = (0, 0)
    seat: int = 0
    source: Source = Source()  # noqa: RUF009 - a frozen value
    actor: str = ""
    heard_at: float = 0.0
    played: dict[BehaviorId, list[Game]] = field(default_factory=dict)
    episodes: int = field(init=False)
    results: Results = field(default_factory=Results)
    record: GameRecord | None = None

    def __post_init__(self) -> None:
        self.episodes = self.match.episodes
        if self.match.seats:
            seat = self.match.seats[self.seat]
            self.played = {(seat.behavior, seat.team): []}

    @property
    def finished(self) -> int:
        """Number of episodes that each behavior id has finished."""
        return min((self.episodes, *(len(each) for each in self.played.values())))

    @property
    def is_over(self) -> bool:
        """True if all episodes were reported."""
        return self.finished >= self.episodes

    def counted(self, behavior: str) -> list[Game]:
        """Returns the episodes of a behavior that count, over all its teams."""
        if self.match.seats and not self.is_over:
            return []
        return [game for (name, _), found in self.played.items() if name == behavior for game in found[: self.episodes]]

    def add(self, behavior: str, item: Experience, counter: GameCounter) -> int:
        """Counts the episodes of a chunk of the match's session; returns the number of those that are new.

        Args:
            behavior: Name of the chunk's behavior.
            item: The chunk.
            counter: Tells which records are the first of their games.
        """
        found = self.played.get((behavior, item.chunk.team))
        if found is None:
            return 0
        before, record = len(found), item.chunk.game_record
        if record is not None and record.match == self.match.number:
            self.record = record
        for game in games_of(behavior, item.chunk):
            if game.match != self.match.number or len(found) >= self.episodes:
                continue
            found.append(game)
            result = RESULTS.get(game.result) if self.match.seats else None
            if result is not None and not game.has_mates_left and counter.is_first(item.session_id, game):
                self.results.add(result)
        return len(found) - before


class Matches:
    """The matches that actors play now, by session: one each.

    Attributes:
        playing: The matches.
    """

    def __init__(self) -> None:
        self.playing: dict[str, Playing] = {}
        self._counter = GameCounter()

    def add(self, playing: Playing) -> Match:
        """Adds a match that begins, and returns it."""
        self.playing[playing.match.session_id] = playing
        return playing.match

    def received(self, behavior: str, item: Experience) -> Playing | None:
        """Counts the episodes of a chunk; returns the match that has new ones, and removes it if it is over."""
        playing = self.playing.get(item.session_id)
        if playing is None or not playing.add(behavior, item, self._counter):
            return None
        if playing.is_over:
            del self.playing[item.session_id]
        return playing

    def lost(self, live: Collection[str]) -> list[Playing]:
        """Removes and returns the matches of sessions that have ended.

        Args:
            live: Sessions that have not ended.
        """
        return [self.playing.pop(session_id) for session_id in list(self.playing) if session_id not in live]


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
