"""Measures how fast a counter grows, and spaces the reports of a lasting condition."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable


class WindowedRate:
    """The recent growth of a cumulative counter.

    Update it at a steady pace, even while the counter does not change. The rate is ``newest - oldest in the window``
    divided by the time between the two. If the counter falls (its owner restarted), the window starts over.

    Args:
        window_seconds: Length of the window; the oldest kept sample is the newest that is at least this old.
        clock: Returns monotonic seconds.
    """

    def __init__(self, window_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        if window_seconds <= 0:
            raise ValueError(f"window_seconds must be above 0, got {window_seconds}")
        self._window_seconds = window_seconds
        self._clock = clock
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, count: float) -> float:
        """Adds the current count and returns the rate."""
        now = self._clock()
        if self._samples and count < self._samples[-1][1]:
            self._samples.clear()
        if self._samples and self._samples[-1][0] == now:
            self._samples.pop()
        self._samples.append((now, count))
        # Keep one sample that is older than the window, so that the window is always covered.
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._window_seconds:
            self._samples.popleft()
        return self.per_second

    @property
    def per_second(self) -> float:
        """Rate between the oldest and the newest sample; 0 before there are two."""
        if len(self._samples) < 2:
            return 0.0
        (then, before), (now, count) = self._samples[0], self._samples[-1]
        return (count - before) / (now - then)


class GrowingInterval:
    """Decides when a lasting condition is reported: at once, then after an interval that doubles each time.

    Args:
        first_seconds: Interval between the first two reports.
        longest_seconds: Largest interval.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, first_seconds: float, longest_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Starts over: the next report is due at once."""
        self._interval_seconds = self._first_seconds
        self._due_at = -math.inf

    @property
    def is_first(self) -> bool:
        """True if nothing was reported since the start."""
        return self._due_at == -math.inf

    def passed(self) -> bool:
        """Returns whether a report is due; if so, starts the next interval."""
        now = self._clock()
        if now < self._due_at:
            return False
        if not self.is_first:
            self._interval_seconds = min(2.0 * self._interval_seconds, self._longest_seconds)
        self._due_at = now + self._interval_seconds
        return True
