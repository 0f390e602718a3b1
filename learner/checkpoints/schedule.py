"""When the next recovery checkpoint is due."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_INTERVAL_SECONDS = 1.0


class RecoverySchedule:
    """Says when to save: after the first update, then at intervals that double from 1 s to the one that was set.

    So a crash early in a run, which is when most crashes happen, costs seconds and not a minute; and a run in which
    nothing is trained (paused, or without actors) writes nothing.

    Example::

        if schedule.is_due(updates=trainer.version):
            store.save_run_state(...)
            schedule.saved(updates=trainer.version)

    Args:
        checkpoint_seconds: the longest interval (``rollcast.checkpoint_seconds``).
        clock: seconds that only grow.
    """

    def __init__(self, checkpoint_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest = checkpoint_seconds
        self._interval = min(FIRST_INTERVAL_SECONDS, checkpoint_seconds)
        self._clock = clock
        self._next_at: float | None = None
        self._saved_updates = 0

    def is_due(self, *, updates: int) -> bool:
        """Says whether to save now.

        Args:
            updates: completed updates of all behaviors in this process so far.
        """
        if updates <= self._saved_updates:
            return False
        return self._next_at is None or self._clock() >= self._next_at

    def saved(self, *, updates: int) -> None:
        """Notes that all of ``updates`` is saved, by whatever occasion; the next interval is twice as long."""
        self._saved_updates = updates
        self._next_at = self._clock() + self._interval
        self._interval = min(2.0 * self._interval, self._longest)

    def failed(self) -> None:
        """Notes that saving failed: it is tried again after the present interval."""
        self._next_at = self._clock() + self._interval
