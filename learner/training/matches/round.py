"""One evaluation: distributes its episodes over actors and collects the results.

Shares are equal and fixed in advance. If actors that finish first got more episodes, the mean would favor fast actors
and short episodes. The actor selects its counted episodes by the same principle
(`actor_client.rollout.evaluation.Quota`). Episodes that a lost actor did not finish are given to others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, zip_longest

from learner.link.evaluation import Order, Played
from learner.link.to_trainers import Actor
from learner.shared.leave_one_out import Source, SourcedValues

BehaviorId = tuple[str, int]
"""Name and team."""


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


@dataclass(slots=True, eq=False)
class _Share:
    order: Order
    source: Source
    played: dict[BehaviorId, list[Played]]
    episodes: int = field(init=False)
    """Episodes in this share: fewer than ordered once its actor is lost."""

    def __post_init__(self) -> None:
        self.episodes = self.order.episodes

    @property
    def is_done(self) -> bool:
        return all(len(played) >= self.episodes for played in self.played.values())


class EvaluationRound:
    """Collects `episodes` of each behavior id.

    Args:
        episodes: Number of episodes.
        versions: Generation and version of each behavior's policy.
        is_deterministic: Whether the mode of the distribution acts.
        numbers: Yields order numbers that were not used before; from 1 if None.
    """

    def __init__(
        self,
        episodes: int,
        versions: Mapping[str, tuple[int, int]],
        *,
        is_deterministic: bool,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._numbers = count(1) if numbers is None else numbers
        self.versions = dict(versions)
        self.is_deterministic = is_deterministic
        self.episodes = episodes
        self._shares: list[_Share] = []

    @property
    def missing(self) -> int:
        """Episodes that are not assigned to any actor."""
        return self.episodes - sum(share.episodes for share in self._shares)

    @property
    def is_done(self) -> bool:
        """Returns whether all episodes were played."""
        return self.missing <= 0 and all(share.is_done for share in self._shares)

    @property
    def finished(self) -> int:
        """Number of finished episodes of each behavior."""
        return sum(min(len(played[: share.episodes]) for played in share.played.values()) for share in self._shares)

    @property
    def orders(self) -> tuple[Order, ...]:
        """All orders, including those of lost actors."""
        return tuple(share.order for share in self._shares)

    def deal(self, candidates: Sequence[Candidate]) -> list[Order]:
        """Distributes the unassigned episodes equally among actors that have nothing to play.

        Args:
            candidates: The available actors; an actor with an unfinished share gets no other.
        """
        busy = {share.order.session_id for share in self._shares if not share.is_done}
        free = [candidate for candidate in candidates if candidate.session_id not in busy and candidate.behavior_ids]
        if not free or self.missing <= 0:
            return []
        least, more = divmod(self.missing, len(free))
        orders: list[Order] = []
        for place, candidate in enumerate(free):
            episodes = least + (place < more)
            if not episodes:
                break
            order = Order(next(self._numbers), candidate.session_id, episodes, self.versions, self.is_deterministic)
            self._shares.append(
                _Share(order, candidate.source, {behavior_id: [] for behavior_id in candidate.behavior_ids})
            )
            orders.append(order)
        return orders

    def add(self, behavior_id: BehaviorId, order: int, played: Played) -> bool:
        """Takes a finished episode; returns whether it belongs to this evaluation."""
        for share in self._shares:
            if share.order.number == order:
                found = share.played.get(behavior_id)
                if found is None or len(found) >= share.episodes:
                    return False
                found.append(played)
                return True
        return False

    def lose(self, session_id: str) -> None:
        """Ends the share of a lost actor; its unfinished episodes become unassigned again."""
        for share in self._shares:
            if share.order.session_id == session_id and not share.is_done:
                share.episodes = min(len(played) for played in share.played.values())

    def played(self, behavior: str) -> list[Played]:
        """Returns the episodes of a behavior, over all its teams."""
        return [
            episode
            for share in self._shares
            for (name, _), played in share.played.items()
            if name == behavior
            for episode in played[: share.episodes]
        ]

    @property
    def principals(self) -> frozenset[str]:
        """Principals of the actors that have a share."""
        return frozenset(share.source.principal for share in self._shares if share.episodes)

    def played_by(self, behavior: str) -> frozenset[str]:
        """Returns the principals whose episodes of a behavior count."""
        return frozenset(
            share.source.principal
            for share in self._shares
            for (name, _), played in share.played.items()
            if name == behavior and played[: share.episodes]
        )

    def least_mean_return(self, behavior: str, others: Collection[Source] = ()) -> float:
        """Returns the smallest mean return of a behavior without the episodes of any one source; see `SourcedValues`.

        Args:
            behavior: Name of the behavior.
            others: Sources that could have played.
        """
        values = SourcedValues(max(1, len(self.played(behavior))))
        for share in self._shares:
            for (name, _), played in share.played.items():
                for episode in played[: share.episodes] if name == behavior else ():
                    values.append(episode.total, share.source)
        return values.least_mean({*others, *(share.source for share in self._shares if share.episodes)})


def players(actors: Iterable[Actor], behaviors: Mapping[int, str]) -> list[Candidate]:
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
