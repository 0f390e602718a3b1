"""Backoff between attempts to reach the learner.

Full jitter: each wait is drawn uniformly between zero and a bound that doubles with each attempt, so that actors which
lost the learner at one moment do not come back at one moment (Brooker, "Exponential Backoff And Jitter", 2015). The
bound is capped at a thirtieth of the outage: a learner that restarts within a minute is found within two seconds, and
one that is away for a night is asked twice a minute.
"""

import random
import time
from typing import Protocol

BASE_SECONDS = 0.2
SMALLEST_CAP_SECONDS = 2.0
LARGEST_CAP_SECONDS = 30.0
CAP_SHARE_OF_OUTAGE = 1 / 30
# A drained learner names one moment for all actors: spread them over this much more.
SPREAD_SECONDS = 0.5


class Clock(Protocol):
    """A clock that never goes back."""

    def __call__(self) -> float:
        """Returns seconds since some moment."""
        ...


class Backoff:
    """Counts attempts since the connection was last healthy, and draws the next wait.

    Args:
        generator: Where draws come from.
        clock: Tells how long the outage lasts.
    """

    def __init__(self, generator: random.Random | None = None, clock: Clock = time.monotonic) -> None:
        self._generator = generator or random.Random()
        self._clock = clock
        self._attempts = 0
        self._since: float | None = None

    @property
    def attempts(self) -> int:
        """Failed attempts since the connection was last healthy."""
        return self._attempts

    def failed(self, at_least_seconds: float | None = None) -> float:
        """Counts a failure.

        Args:
            at_least_seconds: What the learner asked for (RetryInfo, drain); the wait is not shorter.

        Returns:
            The seconds to wait before the next attempt.
        """
        now = self._clock()
        if self._since is None:
            self._since = now
        outage_seconds = now - self._since
        cap = min(max(SMALLEST_CAP_SECONDS, CAP_SHARE_OF_OUTAGE * outage_seconds), LARGEST_CAP_SECONDS)
        bound = min(cap, BASE_SECONDS * 2.0 ** min(self._attempts, 16))
        self._attempts += 1
        wait = self._generator.uniform(0.0, bound)
        if at_least_seconds is not None and at_least_seconds > 0:
            return max(wait, at_least_seconds + self._generator.uniform(0.0, SPREAD_SECONDS))
        return wait

    def healthy(self) -> None:
        """Forgets past failures; the connection has held for a while."""
        self._attempts = 0
        self._since = None
