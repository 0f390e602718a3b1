"""One evaluation against opponents: matches that some actors play one after another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from rollcast.enums import AssignmentRole

from learner.link.evaluation import Order, Played
from learner.link.matches import Match, Seat
from learner.link.to_trainers import Experience
from learner.shared.leave_one_out import Source, SourcedValues
from learner.shared.policies import PolicyKey
from learner.training.matches.result import OpponentResult
from learner.training.matches.round import Candidate
from learner.training.matches.score import TEAMS, MatchScore
from learner.training.matches.self_play_games import GameCounter
from learner.training.matches.strength import Results

RANDOM_MOVES = 1
"""Moves of each player at the start of a game that are random, since two players without chance would repeat their games."""


@dataclass(slots=True, eq=False)
class _Part:
    """The games against one opponent in one seat, which one actor plays.

    Attributes:
        opponent: Place of the opponent.
        seat: Place of the policy under evaluation: 0 for the team with the smaller number.
        games: Number of games.
        session_id: Session that plays them; empty before they are assigned.
        source: Its actor, as a source of returns.
        score: The games so far; None before they are assigned.
    """

    opponent: int
    seat: int
    games: int
    session_id: str = ""
    source: Source = Source()  # noqa: RUF009 - a frozen value
    score: MatchScore | None = None

    @property
    def is_done(self) -> bool:
        return self.score is not None and self.score.is_over


class GamesRound:
    """Plays the policy under evaluation against each opponent, half of the games in each seat.

    The games against an opponent in one seat are a match of one actor, and count as a whole: the games of a match whose
    actor has left do not count, because short games are the first to end.

    Args:
        behavior: Name of the behavior.
        policy: The policy under evaluation.
        opponents: Policies of the opponents; None for the script of the actor.
        games: Games against each opponent.
        is_deterministic: Whether the mode of the policy's distribution acts; opponents draw their actions.
        orders: Yields order numbers that were not used before.
        matches: Yields match numbers that were not used before.
        on_match: Called with the place of the opponent, the seat of the policy, and the games of each finished match.
    """

    def __init__(
        self,
        behavior: str,
        policy: PolicyKey,
        opponents: Sequence[PolicyKey | None],
        games: int,
        *,
        is_deterministic: bool,
        orders: Iterator[int],
        matches: Iterator[int],
        on_match: Callable[[int, int, MatchScore], object],
    ) -> None:
        self.versions = {behavior: (policy.generation, policy.version)}
        self.is_deterministic = is_deterministic
        self.episodes = games * len(opponents)
        self._behavior = behavior
        self._policy = policy
        self._opponents = tuple(opponents)
        self._orders = orders
        self._matches = matches
        self._on_match = on_match
        self._counter = GameCounter()
        halves = (games + 1) // 2, games // 2
        self._parts = [
            _Part(opponent, seat, half)
            for opponent in range(len(opponents))
            for seat, half in enumerate(halves)
            if half
        ]

    @property
    def missing(self) -> int:
        """Games that are not assigned to any actor."""
        return sum(part.games for part in self._parts if part.score is None)

    @property
    def is_done(self) -> bool:
        """True if all games were played."""
        return all(part.is_done for part in self._parts)

    @property
    def finished(self) -> int:
        """Number of finished games."""
        return sum(len(part.score.played) for part in self._parts if part.score is not None)

    def deal(self, candidates: Sequence[Candidate]) -> list[Order]:
        """Gives a match to each actor that has nothing to play.

        Args:
            candidates: The available actors, with the two teams of the behavior.
        """
        busy = {part.session_id for part in self._parts if part.score is not None and not part.is_done}
        free = iter([each for each in candidates if each.session_id not in busy])
        waiting = [part for part in self._parts if part.score is None]
        return [self._order(part, candidate) for part, candidate in zip(waiting, free, strict=False)]

    def _order(self, part: _Part, candidate: Candidate) -> Order:
        keys: list[PolicyKey | None] = [self._opponents[part.opponent]] * TEAMS
        keys[part.seat] = self._policy
        seats = tuple(
            Seat(
                name, team, AssignmentRole.OPPONENT, key, is_deterministic=self.is_deterministic and place == part.seat
            )
            for place, ((name, team), key) in enumerate(zip(sorted(candidate.behavior_ids), keys, strict=True))
        )
        match = Match(next(self._matches), candidate.session_id, seats, episodes=part.games, random_steps=RANDOM_MOVES)
        part.session_id, part.source, part.score = candidate.session_id, candidate.source, MatchScore(match, part.seat)
        return Order(next(self._orders), candidate.session_id, part.games, self.versions, self.is_deterministic, match)

    def received(self, behavior: str, item: Experience) -> bool:
        """Counts the games of a chunk; returns whether any belongs to this evaluation."""
        found = 0
        for part in self._parts:
            if part.score is not None and part.session_id == item.session_id and not part.is_done:
                found += part.score.add(behavior, item, self._counter)
                if part.is_done:
                    self._on_match(part.opponent, part.seat, part.score)
        return found > 0

    def lose(self, session_id: str) -> None:
        """Drops the unfinished match of a lost actor, which another one plays."""
        for part in self._parts:
            if part.session_id == session_id and not part.is_done:
                part.session_id, part.score = "", None

    def played(self, behavior: str) -> list[Played]:
        """Returns the episodes of the policy under evaluation in finished matches."""
        del behavior  # there is only one
        return [episode for _, score in self._finished() for episode in score.played]

    @property
    def principals(self) -> frozenset[str]:
        """Principals of the actors that have a match."""
        return frozenset(part.source.principal for part in self._parts if part.score is not None)

    def played_by(self, behavior: str) -> frozenset[str]:
        """Returns the principals whose finished matches count."""
        del behavior  # there is only one
        return frozenset(part.source.principal for part, _ in self._finished())

    def least_mean_return(self, behavior: str, others: Collection[Source] = ()) -> float:
        """Returns the smallest mean return without the episodes of any one source; see `SourcedValues`.

        Args:
            behavior: Name of the behavior.
            others: Sources that could have played.
        """
        values = SourcedValues(max(1, len(self.played(behavior))))
        found = self._finished()
        for part, score in found:
            for episode in score.played:
                values.append(episode.total, part.source)
        return values.least_mean({*others, *(part.source for part, _ in found)})

    def results(self, names: Sequence[str]) -> tuple[OpponentResult, ...]:
        """Returns the results of finished matches.

        Args:
            names: Names of the opponents, in their order.
        """
        seats = [[Results() for _ in range(TEAMS)] for _ in names]
        for part, score in self._finished():
            seats[part.opponent][part.seat] = score.results
        return tuple(OpponentResult(name, *found) for name, found in zip(names, seats, strict=True))

    def _finished(self) -> list[tuple[_Part, MatchScore]]:
        return [(part, part.score) for part in self._parts if part.score is not None and part.score.is_over]
