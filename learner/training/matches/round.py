"""One evaluation: gives its matches to actors and collects the results.

Without opponents, the shares of the actors are equal and fixed in advance. If actors that finish first got more episodes,
the mean would favor fast actors and short episodes. The actor selects its counted episodes by the same principle
(`actor_client.rollout.evaluation.Quota`). Episodes that a lost actor did not finish are given to others.

Against opponents, the games against each in one seat are a match of one actor, which counts as a whole.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final, NamedTuple

from rollcast.enums import AssignmentRole

from learner.link.matches import Game, Match, Seat
from learner.link.to_trainers import Actor, Experience
from learner.shared.leave_one_out import Source, SourcedValues
from learner.shared.policies import PolicyKey
from learner.training.matches.games import TEAMS, BehaviorId, Matches, Playing
from learner.training.matches.rating import Results, SeatResults
from learner.training.matches.result import EvaluationResult

RANDOM_MOVES: Final = 1
"""Moves of each player at the start of a game that are random, since two players without chance would repeat their games."""
SETTLE_SECONDS: Final = 1.0
"""Seconds without a new actor before the first match: the actors of one script do not start at the same moment."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An actor that can play.

    Attributes:
        session_id: Session of the actor.
        behavior_ids: Behavior ids of the actor to measure.
        source: The actor, as a source of returns.
    """

    session_id: str
    behavior_ids: frozenset[BehaviorId]
    source: Source = Source()  # noqa: RUF009 - a frozen value


class Gathering:
    """Waits until enough actors have joined.

    Args:
        actors: Number of actors to wait for.
        clock: Returns monotonic seconds.

    Attributes:
        is_settled: Whether no actor has joined or left for `SETTLE_SECONDS`.
        is_complete: Whether there were enough actors once they had settled; stays True.
    """

    def __init__(self, actors: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._actors = actors
        self._clock = clock
        self._present: Collection[Hashable] = frozenset()
        self._changed_at = clock()
        self.is_settled = self.is_complete = False

    def note(self, present: Iterable[Hashable]) -> bool:
        """Notes the present actors, and returns `is_complete`."""
        found = frozenset(present)
        if found != self._present:
            self._present, self._changed_at = found, self._clock()
        self.is_settled = self._clock() - self._changed_at >= SETTLE_SECONDS
        self.is_complete |= self.is_settled and len(found) >= self._actors
        return self.is_complete


class _Task(NamedTuple):
    """A match that no actor plays yet: the place of the opponent, that of the policy's seat, and the episodes."""

    opponent: int
    seat: int
    episodes: int


class Round:
    """Plays episodes of policies, or games of one policy against each opponent, half of them in each seat.

    Args:
        policies: The policies under evaluation, by behavior; a single one if there are opponents.
        episodes: Episodes of each behavior id, or games against each opponent.
        is_deterministic: Whether the mode of the policies' distributions acts; opponents draw their actions.
        numbers: Yields match numbers that were not used before.
        opponents: Policies of the opponents; None for the script of the actor. Without any, episodes are played.
        on_match: Called with each finished match against an opponent.

    Attributes:
        versions: Generation and version of each behavior's policy.
        is_deterministic: Whether the mode of the policies' distributions acts.
        episodes: Number of all episodes.
        sessions: Actors that have had a match and are still here.
    """

    def __init__(
        self,
        policies: Mapping[str, PolicyKey],
        episodes: int,
        *,
        is_deterministic: bool,
        numbers: Iterator[int],
        opponents: Sequence[PolicyKey | None] = (),
        on_match: Callable[[Playing], object] = lambda _: None,
    ) -> None:
        self.versions = {name: (policy.generation, policy.version) for name, policy in policies.items()}
        self.is_deterministic = is_deterministic
        self.episodes = episodes * max(1, len(opponents))
        self.sessions: set[str] = set()
        self._policies = tuple(policies.values())
        self._numbers = numbers
        self._opponents = tuple(opponents)
        self._on_match = on_match
        self._matches = Matches()
        self._given: list[Playing] = []
        halves = ((episodes + 1) // 2, episodes // 2) if opponents else (episodes,)
        self._waiting = [
            _Task(opponent, seat, each)
            for opponent in range(max(1, len(opponents)))
            for seat, each in enumerate(halves)
            if each
        ]

    @property
    def plays_games(self) -> bool:
        """True if there are opponents."""
        return bool(self._opponents)

    @property
    def missing(self) -> int:
        """Episodes that are not assigned to any actor."""
        return sum(task.episodes for task in self._waiting)

    @property
    def is_done(self) -> bool:
        """True if all episodes were played."""
        return not self._waiting and all(each.is_over for each in self._given)

    @property
    def finished(self) -> int:
        """Number of finished episodes of each behavior."""
        return sum(each.finished for each in self._given)

    def deal(self, candidates: Sequence[Candidate]) -> list[Match]:
        """Gives a match to each actor that has nothing to play; without opponents, all of them have equal shares.

        Args:
            candidates: The available actors; with opponents, those with the two teams of the behavior.
        """
        free = [each for each in candidates if each.session_id not in self._matches.playing and each.behavior_ids]
        if not self._opponents and free:
            least, more = divmod(self.missing, len(free))
            shares = [least + (place < more) for place in range(len(free))]
            self._waiting = [_Task(0, 0, share) for share in shares if share]
        dealt = list(zip(self._waiting, free, strict=False))
        del self._waiting[: len(dealt)]
        return [self._matches.add(self._begin(task, candidate)) for task, candidate in dealt]

    def _begin(self, task: _Task, candidate: Candidate) -> Playing:
        match = Match(
            next(self._numbers),
            candidate.session_id,
            self._seats(task, candidate) if self._opponents else (),
            episodes=task.episodes,
            random_steps=RANDOM_MOVES if self._opponents else 0,
            versions=self.versions,
            is_deterministic=self.is_deterministic,
        )
        playing = Playing(
            match,
            (task.opponent, task.seat),
            task.seat,
            candidate.source,
            played={i: [] for i in candidate.behavior_ids},
        )
        self._given.append(playing)
        self.sessions.add(candidate.session_id)
        return playing

    def _seats(self, task: _Task, candidate: Candidate) -> tuple[Seat, ...]:
        keys = [self._opponents[task.opponent]] * TEAMS
        keys[task.seat] = self._policies[0]
        return tuple(
            Seat(
                name, team, AssignmentRole.OPPONENT, key, is_deterministic=self.is_deterministic and place == task.seat
            )
            for place, ((name, team), key) in enumerate(zip(sorted(candidate.behavior_ids), keys, strict=True))
        )

    def received(self, behavior: str, item: Experience) -> bool:
        """Counts the episodes of a chunk; returns whether any belongs to this evaluation."""
        playing = self._matches.received(behavior, item)
        if playing is not None and playing.is_over and self._opponents:
            self._on_match(playing)
        return playing is not None

    def settle(self, live: Collection[str]) -> None:
        """Leaves what lost actors have not finished to others.

        Args:
            live: Sessions that have not ended.
        """
        self.sessions.intersection_update(live)
        for lost in self._matches.lost(live):
            if self._opponents:
                self._given.remove(lost)
                insort(self._waiting, _Task(*lost.place, lost.episodes))
            elif left := lost.episodes - lost.finished:
                self._waiting.append(_Task(0, 0, left))
                lost.episodes -= left

    def played(self, behavior: str) -> list[Game]:
        """Returns the episodes of a behavior that count, over all its teams; of games, those of finished matches."""
        return [game for each in self._given for game in each.counted(behavior)]

    def result(self, behavior: str, step: int) -> EvaluationResult | None:
        """Returns the result of a behavior, as far as it was played; None without an episode that counts.

        Args:
            behavior: Name of the behavior.
            step: Trainer steps of its policy.
        """
        played = self.played(behavior)
        if not played:
            return None
        return EvaluationResult.of(
            behavior,
            played,
            step=step,
            version=self.versions[behavior][1],
            is_deterministic=self.is_deterministic,
            is_complete=self.is_done,
        )

    @property
    def principals(self) -> frozenset[str]:
        """Principals of the actors that have a match."""
        return frozenset(each.source.principal for each in self._given if each.episodes)

    def played_by(self, behavior: str) -> frozenset[str]:
        """Returns the principals whose episodes of a behavior count."""
        return frozenset(each.source.principal for each in self._given if each.counted(behavior))

    def least_mean_return(self, behavior: str, others: Collection[Source] = ()) -> float:
        """Returns the smallest mean return of a behavior without the episodes of any one source; see `SourcedValues`.

        Args:
            behavior: Name of the behavior.
            others: Sources that could have played.
        """
        values = SourcedValues(max(1, len(self.played(behavior))))
        counting = [each for each in self._given if each.episodes and (each.is_over or not self._opponents)]
        for each in counting:
            for game in each.counted(behavior):
                values.append(game.total, each.source)
        return values.least_mean({*others, *(each.source for each in counting)})

    def results(self, names: Sequence[str]) -> tuple[SeatResults, ...]:
        """Returns the results of finished matches.

        Args:
            names: Names of the opponents, in their order.
        """
        seats = [[Results() for _ in range(TEAMS)] for _ in names]
        for each in self._given:
            if each.is_over:
                opponent, seat = each.place
                seats[opponent][seat] = each.results
        return tuple(SeatResults(name, *found) for name, found in zip(names, seats, strict=True))


def candidates(actors: Iterable[Actor], behaviors: Mapping[int, str]) -> list[Candidate]:
    """Returns the connected actors that have any of the given behaviors.

    Args:
        actors: Actors that take part.
        behaviors: Names by index.
    """
    found = [
        Candidate(
            actor.session_id,
            frozenset(
                (behaviors[index], team) for index, teams in actor.teams.items() if index in behaviors for team in teams
            ),
            actor.source,
        )
        for actor in sorted(actors, key=lambda actor: actor.actor_index)
        if actor.is_connected
    ]
    return [candidate for candidate in found if candidate.behavior_ids]


def evaluators(
    candidates: Sequence[Candidate], number: int, *, turn: int, with_share: Collection[str] = ()
) -> list[Candidate]:
    """Returns the actors that play an evaluation, so that no principal measures a policy alone if there are several.

    Args:
        candidates: Actors that may play.
        number: Number of actors; at least two if there are several principals.
        turn: Number of the evaluation; which principals play differs from one to the next.
        with_share: Principals that have a share of the evaluation; a single one leaves the rest to others, if there are any.
    """
    by_principal: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_principal.setdefault(candidate.source.principal, []).append(candidate)
    names = sorted(by_principal)
    if len(with_share) == 1:
        names = [name for name in names if name not in with_share] or names
    first = turn % len(names) if names else 0
    in_turn = zip_longest(*(by_principal[name] for name in names[first:] + names[:first]))
    found = [candidate for candidate in chain.from_iterable(in_turn) if candidate is not None]
    return found[: max(number, min(2, len(names)))]
