"""Failures of environments: how many are too many, the pauses after them, and their log."""

from typing import Final

import structlog
from rollcast.throttle import Throttle

from actor_client.counts import RolloutCounts
from actor_client.envs.errors import EnvironmentFailed, EnvironmentFailedTooOften
from actor_client.logs import indented

REMAKE_PAUSE_SECONDS: Final = 0.25
"""Pause before environments are remade, doubled with each consecutive failure; a simulator may need time to end."""
LONGEST_REMAKE_PAUSE_SECONDS: Final = 10.0
STEPS_PER_FAILURE: Final = 100
"""Steps of every environment that offset one failure."""

_log = structlog.get_logger(__name__)


class FailureRate:
    """Judges whether failures are too frequent: many in a row, or over one per `STEPS_PER_FAILURE` steps for long.

    A leaky bucket: a failure adds 1, a step removes 1 / `STEPS_PER_FAILURE`, and `most` is the limit.

    Args:
        most: Number of consecutive failures that is too many.
        pause_seconds: See `REMAKE_PAUSE_SECONDS`.
    """

    def __init__(self, most: int, pause_seconds: float = REMAKE_PAUSE_SECONDS) -> None:
        self._most = most
        self._first_pause_seconds = pause_seconds
        self._level = 0.0
        self._steps = 0  # steps before the last failure
        self._in_row = 0
        self._failures = 0  # since the bucket was last empty
        self._since_steps = 0  # steps before the first of these failures

    def in_row(self, steps: int) -> int:
        """Returns the number of failures since the last successful step.

        Args:
            steps: Steps of every environment taken so far.
        """
        return self._in_row if steps == self._steps else 0

    @property
    def pause_seconds(self) -> float:
        """Seconds between the last failure and the next attempt, doubled with each consecutive failure."""
        return min(self._first_pause_seconds * 2.0 ** min(self._in_row - 1, 30), LONGEST_REMAKE_PAUSE_SECONDS)

    def failed(self, steps: int) -> None:
        """Counts a failure.

        Args:
            steps: Steps of every environment taken so far.
        """
        left = max(0.0, self._level - (steps - self._steps) / STEPS_PER_FAILURE)
        if left == 0.0:
            self._failures, self._since_steps = 0, steps
        self._in_row = self.in_row(steps) + 1
        self._level, self._steps = left + 1.0, steps
        self._failures += 1

    def check(self, last: EnvironmentFailed, traceback: str) -> None:
        """Checks that failures are not too frequent.

        Args:
            last: The newest failure.
            traceback: Its traceback, unless it was logged.

        Raises:
            EnvironmentFailedTooOften: They are.
        """
        if self._level >= self._most:
            raise EnvironmentFailedTooOften(self._failures, self._steps - self._since_steps, last, traceback)


class FailureLog:
    """Counts and logs failures, with the traceback unless the same one was logged last.

    Args:
        counts: Counts failures.

    Attributes:
        failures: Number of failures.
    """

    def __init__(self, counts: RolloutCounts) -> None:
        self._counts = counts
        self._notices = Throttle()
        self._shown = ""
        self.failures = 0

    def add(self, failure: EnvironmentFailed, in_row: int, **fields: object) -> str:
        """Counts and logs a failure; returns its traceback if no line of the log has it.

        Args:
            failure: The failure.
            in_row: Number of failures since the last successful step.
            **fields: Further fields of the line.
        """
        self.failures += 1
        self._counts.env_failed(failure.message)
        traceback = failure.traceback if failure.traceback != self._shown else ""
        if (left_out := self._notices.admit("environment_failed")) is None:
            return traceback
        self._shown = failure.traceback
        _log.warning(
            "environment_failed",
            error=failure.message,
            in_row=in_row,
            failures=self.failures,
            **fields,
            left_out=left_out,
            **({"exception": indented(traceback)} if traceback else {}),
        )
        return ""
