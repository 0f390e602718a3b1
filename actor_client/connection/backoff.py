"""Backoff between attempts to reach the learner.

Full jitter: each wait is drawn uniformly between zero and a bound that doubles with each attempt, so that actors that
lost the learner together do not all return together (Brooker, "Exponential Backoff And Jitter", 2015). The bound is
capped at a thirtieth of the outage: a learner that restarts within a minute is found within two seconds, and a learner
that is away for a night is tried at least twice a minute.
"""

import random
import time
from collections.abc import Callable
from typing import TypeAlias

BASE_SECONDS = 0.2
SMALLEST_CAP_SECONDS = 2.0
LARGEST_CAP_SECONDS = 30.0
CAP_SHARE_OF_OUTAGE = 1 / 30
# A drained learner names the same time to all actors; this share of it is added at random.
SPREAD_SECONDS = 0.5


Clock: TypeAlias = Callable[[], float]
"""Returns monotonic seconds."""


class Backoff:
    """Counts attempts since the connection was last healthy, and draws the next wait.

    Args:
        generator: Source of random numbers.
        clock: Measures the outage.
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
            at_least_seconds: Least wait that the learner asked for (RetryInfo, drain).

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
