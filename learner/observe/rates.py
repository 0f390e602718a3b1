"""Measures how fast a counter grows, and limits how often an event is logged."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final


class WindowedRate:
    """The growth of a cumulative counter over the last seconds.

    Feed it at a steady pace, also while the counter stands still: ``rate = newest - oldest in the window``, divided by
    the time between the two. A counter that falls (its owner started anew) starts the window anew.

    Args:
        window_seconds: how far back it looks; the oldest sample kept is the last one at least this old.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, window_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        if window_seconds <= 0:
            raise ValueError(f"window_seconds must be over 0, got {window_seconds}")
        self._window_seconds = window_seconds
        self._clock = clock
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, count: float) -> float:
        """Notes the counter as it is now and returns the rate."""
        now = self._clock()
        if self._samples and count < self._samples[-1][1]:
            self._samples.clear()
        if self._samples and self._samples[-1][0] == now:
            self._samples.pop()
        self._samples.append((now, count))
        # One sample older than the window stays, so that the window is always covered.
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._window_seconds:
            self._samples.popleft()
        return self.per_second

    @property
    def per_second(self) -> float:
        """The rate between the oldest and the newest sample; 0 before there are two."""
        if len(self._samples) < 2:
            return 0.0
        (then, before), (now, count) = self._samples[0], self._samples[-1]
        return (count - before) / (now - then)


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
