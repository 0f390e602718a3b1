"""How much of its time a thread works, as against waiting for something to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class BusyClock:
    """Measures one thread's waits; what is no wait is work, the turn that goes on included.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        # Waited seconds, and when the wait that goes on began: replaced whole, so that readers need no lock.
        self._waits: tuple[float, float | None] = (0.0, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block is a wait."""
        waited_seconds, _ = self._waits
        begun = self._clock()
        self._waits = waited_seconds, begun
        try:
            yield
        finally:
            self._waits = waited_seconds + self._clock() - begun, None

    @property
    def busy_seconds(self) -> float:
        """Seconds since the clock was made that were not waited; from any thread. Never falls by more than a moment."""
        waited_seconds, waits_since = self._waits
        now = self._clock()
        if waits_since is not None:
            waited_seconds += max(0.0, now - waits_since)
        return max(0.0, now - self._begun - waited_seconds)
