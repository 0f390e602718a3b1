"""One evaluation: shares its episodes out among actors and collects what they play.

Shares are equal and settled before anything is played. If whoever ends first got more, the mean would be that of fast
actors and of short episodes; which episodes of an actor count, the actor settles in the same spirit
(`actor_client.rollout.evaluation.Quota`). What a lost actor did not finish, others play.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from learner.ingest.sessions import SessionTable
from learner.link.evaluation import Order, Played

BehaviorId = tuple[str, int]
"""Name and team."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An actor that can play.

    Attributes:
        session_id: its session.
        behavior_ids: those of its behavior ids that are to be measured.
    """

    session_id: str
    behavior_ids: frozenset[BehaviorId]


@dataclass(slots=True, eq=False)
class _Share:
    order: Order
    played: dict[BehaviorId, list[Played]]
    episodes: int = field(init=False)
    """What it comes to: less than was ordered once its actor is lost."""

    def __post_init__(self) -> None:
        self.episodes = self.order.episodes

    @property
    def is_done(self) -> bool:
        return all(len(played) >= self.episodes for played in self.played.values())


class EvaluationRound:
    """Collects `episodes` of each behavior id.

    Args:
        episodes: how many.
        versions: generation and version of each behavior's policy.
        is_deterministic: the mode of the distribution acts.
    """

    def __init__(self, episodes: int, versions: Mapping[str, tuple[int, int]], *, is_deterministic: bool) -> None:
        self.versions = dict(versions)
        self.is_deterministic = is_deterministic
        self.episodes = episodes
        self._shares: list[_Share] = []

    @property
    def missing(self) -> int:
        """Episodes that nobody was asked for."""
        return self.episodes - sum(share.episodes for share in self._shares)

    @property
    def is_done(self) -> bool:
        """Whether all episodes were played."""
        return self.missing <= 0 and all(share.is_done for share in self._shares)

    @property
    def finished(self) -> int:
        """Episodes that were played, of each behavior."""
        return sum(min(len(played[: share.episodes]) for played in share.played.values()) for share in self._shares)

    @property
    def orders(self) -> tuple[Order, ...]:
        """All orders, those of lost actors too."""
        return tuple(share.order for share in self._shares)

    def deal(self, candidates: Sequence[Candidate]) -> list[Order]:
        """Shares out what is missing, equally, among actors that have nothing to play.

        Args:
            candidates: who is here; who has an unfinished share gets no other.
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
            order = Order(candidate.session_id, episodes, self.versions, self.is_deterministic)
            self._shares.append(_Share(order, {behavior_id: [] for behavior_id in candidate.behavior_ids}))
            orders.append(order)
        return orders

    def add(self, behavior_id: BehaviorId, assignment_id: int, played: Played) -> bool:
        """Takes a finished episode; returns whether it is one of this evaluation."""
        for share in self._shares:
            if assignment_id and share.order.assignment_id == assignment_id:
                found = share.played.get(behavior_id)
                if found is None or len(found) >= share.episodes:
                    return False
                found.append(played)
                return True
        return False

    def lose(self, session_id: str) -> None:
        """An actor has gone: its share ends with what it has played, and the rest is missing again."""
        for share in self._shares:
            if share.order.session_id == session_id and not share.is_done:
                share.episodes = min(len(played) for played in share.played.values())

    def played(self, behavior: str) -> list[Played]:
        """Returns the episodes of a behavior, those of all its teams."""
        return [
            episode
            for share in self._shares
            for (name, _), played in share.played.items()
            if name == behavior
            for episode in played[: share.episodes]
        ]


def players(sessions: SessionTable, behaviors: Collection[str]) -> list[Candidate]:
    """Returns the connected actors that have any of some behaviors, by their index.

    Args:
        sessions: who takes part.
        behaviors: names, without teams.
    """
    with sessions.lock:
        live = sorted(sessions.live(), key=lambda session: session.actor_index)
        found = [
            Candidate(
                session.session_id,
                frozenset(
                    (account.behavior, team)
                    for account in session.accounts.values()
                    if account.behavior in behaviors
                    for team in account.teams
                ),
            )
            for session in live
            if session.is_connected
        ]
    return [candidate for candidate in found if candidate.behavior_ids]
