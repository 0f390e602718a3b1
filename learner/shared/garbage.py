"""Shortens full collections of Python's garbage collector, which stop every thread while they look at all objects."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

LONG_SECONDS: Final = 0.03
"""A full collection that took longer has its survivors frozen."""
FROZEN_SECONDS: Final = 600.0
"""After this time everything is collected again: cycles that have died meanwhile are not found before."""

_FULL: Final = 2


class LongCollections:
    """Freezes what survives a long full collection, so that the next ones look only at newer objects.

    With a thousand sessions a full collection takes half a second, every few seconds if versions go to all of them. What has
    just survived is alive, so freezing hides no garbage; objects without cycles are freed as before.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = 0.0
        self._frozen_at: float | None = None

    def start(self) -> None:
        """Begins to watch collections."""
        gc.callbacks.append(self.note)

    def stop(self) -> None:
        """Stops watching, and makes collectable what it froze."""
        gc.callbacks.remove(self.note)
        if self._frozen_at is not None:
            gc.unfreeze()

    def note(self, phase: str, info: Mapping[str, Any]) -> None:
        """Notes the begin or the end of a collection; see `gc.callbacks`."""
        if info["generation"] != _FULL:
            return
        now = self._clock()
        if phase == "start":
            self._began = now
            if self._frozen_at is not None and now - self._frozen_at >= FROZEN_SECONDS:
                self._frozen_at = None
                gc.unfreeze()
        elif now - self._began >= LONG_SECONDS:
            self._frozen_at = self._frozen_at or now
            gc.freeze()
