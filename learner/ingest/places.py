"""Which place in the run an actor gets: the one its name had, else the smallest free one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count
from typing import Any, Final

MAX_NAMES: Final = 4096
"""Names remembered; the one not heard of for longest is forgotten first."""


class Places:
    """Remembers the place of each actor name, so that an actor that was restarted gets the same seeds again."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def find(self, actor_name: str, taken: Collection[int]) -> int:
        """Returns the place for an actor.

        Args:
            actor_name: may repeat.
            taken: places of the sessions there are.
        """
        place = self._last.pop(actor_name, None)
        if place is None or place in taken:
            place = next(index for index in count() if index not in taken)
        self._last[actor_name] = place
        if len(self._last) > MAX_NAMES:
            del self._last[next(iter(self._last))]
        return place

    def state(self) -> dict[str, int]:
        """Returns the places by name, for a checkpoint."""
        return dict(self._last)

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint."""
        self._last = {str(name): int(place) for name, place in state.items()}
