"""The newest messages of the service: the connected actors and the view of the run."""

from __future__ import annotations

from learner.link.control import Seen
from learner.link.to_trainers import Actor, Actors
from learner.shared.leave_one_out import Source
from learner.shared.observe.view import RunView


class Roster:
    """Holds the newest `Actors`, which the trainers' thread writes, and the newest view; readable from any thread.

    Attributes:
        newest: The newest message about actors.
        view: The newest view of the run; None before the service sent one.
    """

    def __init__(self) -> None:
        self.newest = Actors()
        self.view: RunView | None = None
        self._senders: dict[str, set[Source]] = {}

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Actors that are connected or within their lease."""
        return self.newest.actors

    @property
    def session_ids(self) -> frozenset[str]:
        """Session ids of these actors."""
        return frozenset(actor.session_id for actor in self.newest.actors)

    def note_sender(self, behavior: str, source: Source) -> None:
        """Notes that an actor has sent steps of a behavior."""
        self._senders.setdefault(behavior, set()).add(source)

    def sources(self, behavior: str) -> frozenset[Source]:
        """Returns the present actors that have sent steps of a behavior; call it in the trainers' thread."""
        senders = self._senders.get(behavior, set())
        senders.intersection_update([actor.source for actor in self.actors])
        return frozenset(senders)

    def note_seen(self, seen: Seen) -> None:
        """Stores the newest view; callable from any thread."""
        self.view = seen.view
