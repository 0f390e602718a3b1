"""Log lines that may repeat thousands of times: said at once, and then at most once per interval."""

import time
from collections.abc import Callable

INTERVAL_SECONDS = 10.0


class Notices:
    """Remembers when each kind of line was said last.

    Example:
        if (left_out := notices.due("rejected")) is not None:
            log.warning("chunk_rejected", left_out=left_out)
    """

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._said: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def due(self, kind: str) -> int | None:
        """Returns how many lines of this kind were left out since the last one; None if this one shall be, too."""
        now = self._clock()
        said = self._said.get(kind)
        if said is not None and now - said < self._interval_seconds:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        self._said[kind] = now
        return self._left_out.pop(kind, 0)

    def reset(self, kind: str) -> None:
        """Lets the next line of this kind be said at once: what it was about is over."""
        self._said.pop(kind, None)
        self._left_out.pop(kind, None)
