"""Whether the stepping thread lives: it says so while it steps, and while it waits for good reason.

An actor that waits for its learner is well; one whose environment hangs is not. A container's health check reads the
file, since the process itself may be stuck.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from actor_client.exits import ActorError, ExitCode

INTERVAL_SECONDS: Final = 2.0
STUCK_SECONDS: Final = 60.0
"""After so long without a beat `/healthz` says that the actor is stuck."""


class Heartbeat:
    """Notes beats of the stepping thread, and touches a file every `INTERVAL_SECONDS` at most.

    Args:
        path: The file; None keeps beats in memory alone.
        clock: Monotonic seconds.

    Raises:
        ActorError: The file cannot be written (USAGE).
    """

    __slots__ = ("_beaten", "_clock", "_due", "_path")

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._beaten = self._due = clock()
        if path is not None:
            try:
                path.touch()
            except OSError as error:
                raise ActorError(
                    ExitCode.USAGE,
                    f"--heartbeat-file {path} cannot be written ({error.strerror}): choose a file in an existing "
                    "folder that the actor may write to",
                ) from None

    @property
    def age_seconds(self) -> float:
        """Time since the last beat, to `INTERVAL_SECONDS`."""
        return self._clock() - self._beaten

    def beat(self) -> None:
        """Says that the thread goes on; cheap enough for every step."""
        now = self._clock()
        if now < self._due:
            return
        self._beaten = now
        self._due = now + INTERVAL_SECONDS
        if self._path is not None:
            with suppress(OSError):  # a full disk is no reason to stop; the check will see an old file
                self._path.touch()


def check(path: Path, max_age_seconds: float) -> str:
    """Returns in words how old a beat is.

    Raises:
        ActorError: There is none, or it is too old (STUCK).
    """
    try:
        age_seconds = time.time() - path.stat().st_mtime
    except OSError as error:
        raise ActorError(ExitCode.STUCK, f"{path}: {error.strerror}; has an actor with this file begun?") from None
    if age_seconds > max_age_seconds:
        raise ActorError(
            ExitCode.STUCK,
            f"{path}: the actor last stepped, or waited for its learner, {age_seconds:.1f} s ago; at most "
            f"{max_age_seconds:g} s are allowed (--max-age). Its environment may hang: restart it",
        )
    return f"alive {max(0.0, age_seconds):.1f} s ago"
