"""Limits how often something is logged."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

MAX_KEYS: Final = 1024


class Throttle:
    """Admits one event of a kind per interval, and counts the others.

    Args:
        interval_seconds: Shortest time between two events of a kind, in seconds.
        clock: Returns monotonic seconds.

    Example:
        if (left_out := throttle.admit("rejected")) is not None:
            log.warning("chunk_rejected", left_out=left_out)
    """

    def __init__(self, interval_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._kinds: dict[Hashable, tuple[float, int]] = {}

    def admit(self, kind: Hashable) -> int | None:
        """Returns how many events of this kind were suppressed since the last one; None suppresses this one too."""
        now = self._clock()
        last, left_out = self._kinds.get(kind, (-self._interval_seconds, 0))
        if now - last < self._interval_seconds:
            self._kinds[kind] = (last, left_out + 1)
            return None
        if len(self._kinds) >= MAX_KEYS and kind not in self._kinds:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = (now, 0)
        return left_out

    def forget(self, kind: Hashable) -> None:
        """Admits the next event of a kind at once."""
        self._kinds.pop(kind, None)
