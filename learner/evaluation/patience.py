"""How long an evaluation has taken, when to say so, and when to give it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TOLD_AFTER_SECONDS: Final = 60.0
"""One that takes longer is told of, and again each time that it has taken twice as long."""
REST_FACTOR: Final = 9
"""After one that was given up none begins for so many times as long as it took: at most a tenth of the time is lost."""


class Patience:
    """The clock of one evaluation.

    Args:
        max_silent_seconds: how long no episode may end.
        clock: monotonic seconds.
    """

    def __init__(self, max_silent_seconds: float, clock: Callable[[], float]) -> None:
        self._max_silent_seconds = max_silent_seconds
        self._clock = clock
        self._began_at = self._heard_at = clock()
        self._told_after = TOLD_AFTER_SECONDS

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return self._clock() - self._began_at

    @property
    def silent_seconds(self) -> float:
        """For how long no episode has ended."""
        return self._clock() - self._heard_at

    @property
    def is_over(self) -> bool:
        """Whether it is to be given up."""
        return self.silent_seconds >= self._max_silent_seconds

    @property
    def rests_until(self) -> float:
        """When the next one may begin if this one is given up now, on the clock."""
        return self._clock() + REST_FACTOR * self.seconds

    def note_episode(self) -> None:
        """An episode has ended."""
        self._heard_at = self._clock()

    def is_to_be_told(self) -> bool:
        """Returns whether it is time to say how long it has taken; true once each time."""
        if self.seconds < self._told_after:
            return False
        while self._told_after <= self.seconds:
            self._told_after *= 2
        return True
