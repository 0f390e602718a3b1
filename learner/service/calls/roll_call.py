"""Tells the trainers which actors are present, in order with the experience: actors leave after their last chunks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from learner.link.to_trainers import Actors
from learner.service.calls.paced import REST
from learner.service.ingest.sessions import SessionTable

EVERY_SECONDS: Final = 0.05
"""Shortest time between two messages; each lists all actors, and a thousand may join within a second."""


class RollCall:
    """Sends `Actors` when sessions begin, change or end, and at each `tick`. For the event loop alone.

    Args:
        sessions: The sessions.
        send: Sends a message to the trainers.
        at_once: Whether the run is in lock-step: every change is sent before anything else, so that no clock decides to
            which round a change belongs.
    """

    def __init__(self, sessions: SessionTable, send: Callable[[Actors], object], *, at_once: bool) -> None:
        self._sessions = sessions
        self._send = send
        self._at_once = at_once
        self._told = Actors()
        self._next_at = -math.inf
        self._due: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Records that a session began, changed or ended."""
        if self._at_once:
            self.tick()
        elif self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time(), self._next_at), self._tell)

    def agents_changed(self) -> None:
        """Records that a session has more or fewer agents; sent at the next `tick` unless the run is in lock-step."""
        if self._at_once:
            self.tick()

    def tick(self) -> None:
        """Sends what has changed, including steps taken and numbers of agents; call it every second."""
        actors = self._sessions.actors()
        if actors != self._told:
            self._told = actors
            self._send(actors)

    def stop(self) -> None:
        """Stops sending."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        self._due, began = None, loop.time()
        self.tick()
        self._next_at = began + max(EVERY_SECONDS, REST * (loop.time() - began))
