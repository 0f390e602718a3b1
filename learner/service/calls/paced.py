"""Spaces out work that grows with the number of sessions, so that it takes a small part of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

REST: Final = 10.0
"""A pass is followed by this many times its duration without one."""


class PacedPass:
    """Runs passes over all sessions: at once if the last one was long enough ago, otherwise one for many requests.

    A trainer reports many times a second, and after each report any session may have more credit. With 300 sessions the
    passes after each report took half of the event loop.

    Args:
        run: Runs a pass for the behaviors that were requested since the last one.
    """

    def __init__(self, run: Callable[[set[int]], object]) -> None:
        self._run = run
        self._requested: set[int] = set()
        self._rests_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def request(self, behavior_indices: Iterable[int]) -> None:
        """Requests a pass for some behaviors."""
        self._requested.update(behavior_indices)
        if self._timer is not None:
            return
        wait_seconds = self._rests_until - time.monotonic()
        if wait_seconds > 0:
            self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._begin)
        else:
            self._begin()

    def stop(self) -> None:
        """Drops a pass that waits."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._timer = None
        requested, self._requested = self._requested, set()
        began = time.monotonic()
        self._run(requested)
        now = time.monotonic()
        self._rests_until = now + REST * (now - began)
