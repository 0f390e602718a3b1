"""The places of actors in a run: each actor name keeps its place, and with it its seeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count as count_up
from typing import Any, Final

from rollcast.errors import BadRequest, TooManySessions

from learner.service.ingest.session import MAX_PLACE
from learner.shared.saved_values import count

MAX_NAMES: Final = 4096
"""Most names remembered; the least recently seen one is forgotten first."""
RETRY_SECONDS: Final = 5.0


class Places:
    """Remembers the place of each actor name, so that a restarted actor gets the same seeds again."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def find(
        self, actor_name: str, live: Collection[int], awaited: Collection[int] = (), *, principal: str = ""
    ) -> int:
        """Returns the place for an actor.

        Args:
            actor_name: Name of the actor; may repeat.
            live: Places of the present actors.
            awaited: Places of actors that were present before a restart of the learner and may return.
            principal: Name of its principal; the same actor name of another one is another actor.
        """
        key = f"{principal}\n{actor_name}" if principal else actor_name  # no name of an actor has a line break
        place = self._choose(actor_name, self._last.pop(key, None), live, awaited)
        self._last[key] = place
        if len(self._last) > MAX_NAMES:
            del self._last[next(iter(self._last))]
        return place

    def _choose(self, actor_name: str, last: int | None, live: Collection[int], awaited: Collection[int]) -> int:
        del actor_name
        taken = {*live, *awaited}
        return (
            last
            if last is not None and last not in taken
            else next(index for index in count_up() if index not in taken)
        )

    def state_dict(self) -> dict[str, int]:
        """Returns the places by name, for a checkpoint."""
        return dict(self._last)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from a checkpoint.

        Raises:
            TypeError, ValueError: The state is invalid.
        """
        self._last = {str(name): count(state, name, most=MAX_PLACE) for name in state}


class FixedPlaces(Places):
    """Places from 0 to one less than the number of actors, so that a restarted actor keeps its place.

    Args:
        actors: Number of places.
        names: Names of the actors in the order of their places; None assigns places in the order of arrival.
    """

    def __init__(self, actors: int, names: Sequence[str] | None = None) -> None:
        super().__init__()
        self._actors = actors
        self._names = None if names is None else tuple(names)

    def _choose(self, actor_name: str, last: int | None, live: Collection[int], awaited: Collection[int]) -> int:
        """Returns the place of an actor; if necessary that of an awaited actor that has not returned.

        Raises:
            BadRequest: The run file names its actors, and this one is not among them.
            TooManySessions: The place is taken.
        """
        if self._names is not None:
            if actor_name not in self._names:
                raise BadRequest(
                    f"the actors of this run in lock-step are {', '.join(self._names)} "
                    "(rollcast.lockstep.actor_names): start this actor with one of these names (--name), or add "
                    f"{actor_name!r} to the list",
                    metadata={"field": "actor_name"},
                )
            last = self._names.index(actor_name)
        free = [place for place in range(self._actors) if place not in live]
        if last in free:
            return last
        if self._names is not None or not free:
            raise TooManySessions(
                f"the run is in lock-step and has no free place for {actor_name!r}: stop the actor that takes its "
                "place, or give this one another name",
                retry_after_seconds=RETRY_SECONDS,
            )
        return next((place for place in free if place not in awaited), free[0])
