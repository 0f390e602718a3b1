"""Keeps a fault that repeats a hundred times a second from filling the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

MAX_KEYS: Final = 1024


class Throttle:
    """Lets one event of a kind pass in each interval, and counts the others.

    Args:
        interval_seconds: at least so long lies between two events of a kind.
        clock: monotonic seconds.
    """

    def __init__(self, interval_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._kinds: dict[Hashable, tuple[float, int]] = {}

    def admit(self, kind: Hashable) -> int | None:
        """Says whether an event may pass: how many of its kind did not since the last one, or None if it may not."""
        now = self._clock()
        last, left_out = self._kinds.get(kind, (-self._interval_seconds, 0))
        if now - last < self._interval_seconds:
            self._kinds[kind] = (last, left_out + 1)
            return None
        if len(self._kinds) >= MAX_KEYS and kind not in self._kinds:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = (now, 0)
        return left_out
