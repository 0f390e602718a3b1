"""Watches for environment calls that do not return: reports them, and ends the actor when it is to end."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

import structlog

from actor_client.counts import RolloutCounts
from actor_client.envs.tracebacks import place_of_thread
from actor_client.exits import ActorError, ExitCode
from actor_client.rollout.vector.environments import CLOSE, CONSTRUCTION, PAUSE, RESET, RESUMPTION, STEP

LOOK_SECONDS: Final = 0.25
REPORT_SECONDS: Final = 10.0
"""Duration of a call after which it is reported to the learner."""
WARN_SECONDS: Final = 30.0
"""Duration of a call after which the log has a warning, which repeats each time the duration doubles."""
STOP_SECONDS: Final = 5.0
"""Time that an actor that is asked to stop waits for a call to return; a container has ten seconds to end."""
CLOSE_SECONDS: Final = 30.0
"""`STOP_SECONDS` of a call of `close()`: a simulator may end slowly, and nothing waits for its steps any more."""
CONSTRUCTION_SECONDS: Final = 60.0
"""Shortest limit of a construction: simulators may start slowly, and imports of large libraries count too."""
_TIMED: Final = frozenset({STEP, RESET, CLOSE, PAUSE, RESUMPTION})

_log = structlog.get_logger(__name__)


class WatchedCalls(Protocol):
    """Environments whose calls are watched."""

    @property
    def num_envs(self) -> int:
        """Number of environments."""

    @property
    def calls(self) -> int:
        """Number of calls begun."""

    @property
    def call(self) -> str:
        """The present call, as in `step()`; empty between two calls."""

    @property
    def active(self) -> int | None:
        """The environment that the call reached last; None if all are called at once."""

    @property
    def ending(self) -> str:
        """Why the environments are closed for the last time; empty before."""


@dataclass(frozen=True, slots=True)
class OneCall:
    """A call for all environments, as `WatchedCalls`.

    Attributes:
        num_envs: Number of environments.
        call: Making the first ones, or closing the last ones.
        ending: Why they are closed.
    """

    num_envs: int
    call: str = CONSTRUCTION
    ending: str = ""
    calls: int = 1
    active: int | None = None


class EnvironmentWatch:
    """Watches the environments in a thread while a block runs; the thread that enters the block steps them.

    A call that holds Python's global lock also blocks the watch; the actor's lease then expires.

    Args:
        environments: The watched environments.
        counts: Receives a call that does not return, for the report to the learner.
        is_stopping: Returns whether the actor was asked to end.
        give_up: Ends the process with an error, because the stepping thread cannot; called once, in the watch's thread.
        timeout_seconds: Duration of a call of an environment that ends the actor; None sets no limit. A
            construction has this time for each environment, but at least `CONSTRUCTION_SECONDS`.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        environments: WatchedCalls,
        counts: RolloutCounts,
        *,
        is_stopping: Callable[[], bool],
        give_up: Callable[[ActorError], object],
        timeout_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environments = environments
        self._counts = counts
        self._is_stopping = is_stopping
        self._give_up = give_up
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._stepping_thread = threading.get_ident()
        self._seen: tuple[int, str, int | None] = (0, "", None)
        self._since = self._stop_since = clock()
        self._warn_at_seconds = WARN_SECONDS
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rollcast-watch", daemon=True)

    def __enter__(self) -> Self:
        self._stepping_thread = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def look(self) -> ActorError | None:
        """Notes the duration of the present call; returns the error that ends the actor if it is too long."""
        now, environments = self._clock(), self._environments
        seen = environments.calls, environments.call, environments.active
        if not self._is_stopping() and not environments.ending:
            self._stop_since = now
        if not seen[1] or seen != self._seen:
            self._returned(now)
            self._seen, self._since = seen, now
            return None
        seconds = now - self._since
        if seconds >= REPORT_SECONDS:
            self._counts.hanging = self._said(), seconds
        if seconds >= self._warn_at_seconds:
            self._warn_at_seconds = 2 * seconds
            _log.warning("environment_hangs", call=f"{self._said()} for {seconds:.0f} s")
        limit_seconds = self._limit_seconds(seen[1])
        if limit_seconds is not None and seconds >= limit_seconds:
            return self._too_long(
                seconds, f"--step-timeout allows {limit_seconds:g} s: find the cause, or raise the limit"
            )
        if now - max(self._since, self._stop_since) >= (CLOSE_SECONDS if seen[1] == CLOSE else STOP_SECONDS):
            why = (
                "the actor was asked to stop"
                if self._is_stopping()
                else f"it is the actor's end ({self._environments.ending})"
            )
            return self._too_long(seconds, f"{why}, and ended without waiting for it")
        return None

    def _limit_seconds(self, call: str) -> float | None:
        """Returns the longest duration that `--step-timeout` allows a call; None without a limit."""
        if self._timeout_seconds is None or call in _TIMED:
            return self._timeout_seconds
        if call == CONSTRUCTION:
            return max(CONSTRUCTION_SECONDS, self._timeout_seconds * self._environments.num_envs)
        return None

    def _work(self) -> None:
        """Runs in the watch's thread."""
        look_seconds = min(LOOK_SECONDS, (self._timeout_seconds or LOOK_SECONDS) / 4)
        while not self._done.wait(look_seconds):
            error = self.look()
            if error is not None:
                self._give_up(error)
                return

    def _returned(self, now: float) -> None:
        """Withdraws the report of a call that has returned."""
        if self._counts.hanging is not None:
            self._counts.hanging = None
            if self._warn_at_seconds > WARN_SECONDS:
                _log.info("environment_returned", call=self._seen[1], seconds=now - self._since)
        self._warn_at_seconds = WARN_SECONDS

    def _said(self) -> str:
        """Returns a text with the environment, its call, and the present place in its code."""
        _, call, index = self._seen
        who = "the environment batch" if index is None or call not in _TIMED else f"environment {index}"
        place = place_of_thread(self._stepping_thread)
        return f"{who} has been in {call}{f' at {place}' if place else ''}"

    def _too_long(self, seconds: float, why: str) -> ActorError:
        return ActorError(ExitCode.ENVIRONMENT_HANGS, f"{self._said()} for {seconds:.1f} s; {why}")
