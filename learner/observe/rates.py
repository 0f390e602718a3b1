"""How fast a counter grows, lately."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


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
