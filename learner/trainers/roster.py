"""The newest messages of the service: the connected actors and the view of the run."""

from __future__ import annotations

from learner.link.control import Seen
from learner.link.to_trainers import Actor, Actors
from learner.observe.view import RunView


class Roster:
    """Holds the newest `Actors`, which the trainers' thread writes, and the newest view; readable from any thread.

    Attributes:
        newest: The newest message about actors.
        view: The newest view of the run; None before the service sent one.
    """

    def __init__(self) -> None:
        self.newest = Actors()
        self.view: RunView | None = None

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Actors that are connected or within their lease."""
        return self.newest.actors

    @property
    def session_ids(self) -> frozenset[str]:
        """Session ids of these actors."""
        return frozenset(actor.session_id for actor in self.newest.actors)

    def note_seen(self, seen: Seen) -> None:
        """Stores the newest view; callable from any thread."""
        self.view = seen.view
