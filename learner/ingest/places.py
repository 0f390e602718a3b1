"""Which place in the run an actor gets: the one its name had, else the smallest free one; in lock-step, a fixed one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count as count_up
from typing import Any, Final

from rollcast.errors import BadRequest, TooManySessions

from learner.common.saved_values import count
from learner.ingest.session import MAX_PLACE

MAX_NAMES: Final = 4096
"""Names remembered; the one not heard of for longest is forgotten first."""
RETRY_SECONDS: Final = 5.0


class Places:
    """Remembers the place of each actor name, so that an actor that was restarted gets the same seeds again."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def find(self, actor_name: str, live: Collection[int], awaited: Collection[int] = ()) -> int:
        """Returns the place for an actor.

        Args:
            actor_name: may repeat.
            live: places of the actors that are here.
            awaited: places of those that were here before a restart of the learner, and may come back.
        """
        place = self._choose(actor_name, self._last.pop(actor_name, None), live, awaited)
        self._last[actor_name] = place
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

    def state(self) -> dict[str, int]:
        """Returns the places by name, for a checkpoint."""
        return dict(self._last)

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint.

        Raises:
            TypeError, ValueError: it is not what was saved.
        """
        self._last = {str(name): count(state, name, most=MAX_PLACE) for name in state}


class FixedPlaces(Places):
    """Places from 0 to one less than the number of actors, so that a restarted actor is the one it was.

    Args:
        actors: how many places there are.
        names: the names of the actors in the order of their places; None gives places by who came first.
    """

    def __init__(self, actors: int, names: Sequence[str] | None = None) -> None:
        super().__init__()
        self._actors = actors
        self._names = None if names is None else tuple(names)

    def _choose(self, actor_name: str, last: int | None, live: Collection[int], awaited: Collection[int]) -> int:
        """Returns the place of an actor: if need be that of one that is awaited, and has not come.

        Raises:
            BadRequest: the run file names its actors, and not this one.
            TooManySessions: the place is taken.
        """
        if self._names is not None:
            if actor_name not in self._names:
                raise BadRequest(
                    f"the run is in lock-step, and its actors are {', '.join(self._names)} "
                    f"(rollcast.lockstep.actor_names): start this one with --name, or add {actor_name!r}",
                    metadata={"field": "actor_name"},
                )
            last = self._names.index(actor_name)
        free = [place for place in range(self._actors) if place not in live]
        if last in free:
            return last
        if self._names is not None or not free:
            raise TooManySessions(
                f"the run is in lock-step, and the place of {actor_name!r} is taken: stop the actor that has it, or "
                "give this one another name",
                retry_after_seconds=RETRY_SECONDS,
            )
        return next((place for place in free if place not in awaited), free[0])
