"""Counts the steps that actors took and gave up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rollcast.limits import MAX_REASONS

from learner.shared.saved_values import MAX_CLAIMED, count

ACTOR_GONE: Final = "actor_gone"
"""Reason of steps that an actor still had when its session ended, and of which it has not said what became of them."""
OTHER: Final = "other"
"""Reason of steps whose own reason is one too many: actors choose the words, and each would be kept for ever."""


@dataclass(slots=True)
class GivenUp:
    """Steps of one behavior that actors took and gave up, by reason.

    Attributes:
        discarded: Given up before they became part of a chunk.
        dropped: Given up in chunks that were never acked.
    """

    discarded: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All steps."""
        return self.discarded.total() + self.dropped.total()

    def add(self, other: GivenUp) -> None:
        """Adds another record's counts; from `MAX_REASONS` on, new reasons count as `OTHER`."""
        for own, others in ((self.discarded, other.discarded), (self.dropped, other.dropped)):
            for reason, steps in others.items():
                own[reason if reason in own or len(own) < MAX_REASONS else OTHER] += steps

    def state_dict(self) -> dict[str, dict[str, int]]:
        """Returns the counts as plain values, for a checkpoint."""
        return {"discarded": dict(self.discarded), "dropped": dict(self.dropped)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> GivenUp:
        """Creates the counts from a checkpoint.

        Raises:
            KeyError, TypeError, ValueError: The state is invalid.
        """
        discarded, dropped = (
            {str(reason): count(state[kind], reason, most=MAX_CLAIMED) for reason in state[kind]}
            for kind in ("discarded", "dropped")
        )
        return cls(Counter(discarded), Counter(dropped))
