"""Tells whether the stepping thread is alive: the thread beats while it steps, and while it waits for a good reason.

An actor that waits for its learner is healthy; one whose environment hangs is not. A container's health check reads the
file, since the process itself may be stuck. The file holds the time of the last beat by the machine's monotonic clock,
which all processes share. The file's date would be unreliable after the system clock was set back.
"""

import errno
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rollcast.files import overwrite, read_regular

from actor_client.exits import ActorError, ExitCode

INTERVAL_SECONDS: Final = 2.0
STUCK_SECONDS: Final = 60.0
"""Seconds without a beat after which `/healthz` reports the actor as stuck."""
_MAX_BYTES: Final = 100


class Heartbeat:
    """Notes beats of the stepping thread, and writes the time into a file at most every `INTERVAL_SECONDS`.

    Args:
        path: The file; None keeps beats only in memory.
        clock: Monotonic seconds.

    Raises:
        ActorError: The file cannot be written, or holds something else (USAGE).
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._beaten = self._due = clock()
        if path is not None:
            try:
                _require_own(path)
                _write(path, self._beaten)
            except OSError as error:
                raise ActorError(
                    ExitCode.USAGE,
                    f"--heartbeat-file {path} cannot be written ({error.strerror}): choose a file in an existing "
                    "folder that the actor may write to",
                ) from None

    @property
    def age_seconds(self) -> float:
        """Seconds since the last beat, to within `INTERVAL_SECONDS`."""
        return self._clock() - self._beaten

    def beat(self) -> None:
        """Notes that the thread is alive; cheap enough for every step."""
        now = self._clock()
        if now < self._due:
            return
        self._beaten = now
        self._due = now + INTERVAL_SECONDS
        if self._path is not None:
            with suppress(OSError):  # a full disk is no reason to stop; the check will see an old file
                _write(self._path, now)


def check(path: Path, max_age_seconds: float, clock: Callable[[], float] = time.monotonic) -> str:
    """Returns the age of the last beat in words.

    Args:
        path: The file.
        max_age_seconds: Largest allowed age.
        clock: The actor's clock.

    Raises:
        ActorError: There is no beat, or it is too old (STUCK).
    """
    try:
        age_seconds = _age(path, clock)
    except OSError as error:
        raise ActorError(ExitCode.STUCK, f"{path}: {error.strerror}; has an actor with this file started?") from None
    if not math.isfinite(age_seconds):
        raise ActorError(ExitCode.STUCK, f"{path} does not contain a time; is it the --heartbeat-file of an actor?")
    if age_seconds < 0:
        raise ActorError(
            ExitCode.STUCK, f"{path} is older than the last start of this machine; has an actor started since?"
        )
    if age_seconds > max_age_seconds:
        raise ActorError(
            ExitCode.STUCK,
            f"{path}: the actor last stepped, or waited for its learner, {age_seconds:.1f} s ago; at most "
            f"{max_age_seconds:g} s are allowed (--max-age). Its environment may hang: restart the actor",
        )
    return f"last beat {age_seconds:.1f} s ago"


def _require_own(path: Path) -> None:
    """Refuses to replace a file that holds anything but a beat.

    Raises:
        ActorError: It holds something else (USAGE).
        OSError: It cannot be read.
    """
    try:
        text = _read(path)
        is_own = not text or text == _written(float(text))
    except FileNotFoundError:
        return
    except ValueError:
        is_own = False
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        is_own = False
    if not is_own:
        raise ActorError(
            ExitCode.USAGE, f"--heartbeat-file {path} exists and holds no beat: choose another file, or remove it"
        )


def _written(now: float) -> str:
    return f"{now!r}\n"  # unrounded: a beat must not lie ahead of the clock


def _age(path: Path, clock: Callable[[], float]) -> float:
    """Returns the age of the last beat; by the file's date while the file is being written, or if the disk is full."""
    try:
        beaten = float(_read(path))
    except ValueError:
        return max(0.0, time.time() - path.stat().st_mtime)
    return clock() - beaten  # read afterwards, because the actor may write in between


def _read(path: Path) -> str:
    return read_regular(path, _MAX_BYTES).decode("utf-8", "replace")


def _write(path: Path, now: float) -> None:
    overwrite(path, _written(now).encode())
