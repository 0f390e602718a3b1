"""How often a player may be started again: a number over its life, and a number within a time, as ML-Agents has them."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

NO_LIMIT: Final = -1


class RestartQuota:
    """The restarts of one player.

    Args:
        max_lifetime_restarts: How many there may be; `NO_LIMIT` for any number.
        rate_limit: How many there may be within `period_seconds`; `NO_LIMIT` for any number.
        period_seconds: The time.
        clock: Monotonic seconds.

    Attributes:
        restarts: How many there were.
    """

    def __init__(
        self,
        max_lifetime_restarts: int,
        rate_limit: int,
        period_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.restarts = 0
        self._most = max_lifetime_restarts
        self._rate_limit = rate_limit
        self._period_seconds = period_seconds
        self._clock = clock
        self._recent: deque[float] = deque()

    def refusal(self) -> str | None:
        """Returns why the player may not be started again, with the limit and its key; None if it may."""
        if self._most != NO_LIMIT and self.restarts >= self._most:
            return f"it was started again {self.restarts} times, and max_lifetime_restarts is {self._most}"
        self._forget()
        if self._rate_limit != NO_LIMIT and len(self._recent) >= self._rate_limit:
            return (
                f"it was started again {len(self._recent)} times within {self._period_seconds:g} s, and "
                f"restarts_rate_limit_n is {self._rate_limit}"
            )
        return None

    def count(self) -> None:
        """Counts a restart."""
        self.restarts += 1
        if self._rate_limit != NO_LIMIT:
            self._recent.append(self._clock())

    def _forget(self) -> None:
        """Drops restarts from before the period."""
        begin = self._clock() - self._period_seconds
        while self._recent and self._recent[0] < begin:
            self._recent.popleft()
