"""Stop 6 of a step's way: where the service leaves chunks for a trainer, and the trainer leaves its pace for the service.

This is one of the two places where the service and the trainers meet (the other is `learner.publish.store`). Only plain
arrays and numbers pass, so that a process boundary can run through it.
"""

from __future__ import annotations

import threading
from collections import deque

from learner.ingest.wakeup import Wakeup
from learner.link.experience import Pace, QueuedChunk


class QueueFullError(RuntimeError):
    """A chunk was put although `TrajectoryQueue.has_room` would have said no."""


class TrajectoryQueue:
    """Chunks in the order of arrival. One thread puts, one takes; both sides may look at it at any time.

    Args:
        capacity_bytes: memory the waiting chunks may hold. Credit keeps well-behaved actors below it; behind that, the
            service stops reading from the network.
        to_service: woken when room appears or the pace changes.
        to_trainer: set when a chunk comes.
    """

    def __init__(
        self, capacity_bytes: int, *, to_service: Wakeup | None = None, to_trainer: threading.Event | None = None
    ) -> None:
        if capacity_bytes <= 0:
            raise ValueError(f"capacity_bytes must be over 0, got {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._to_service = to_service
        self._to_trainer = to_trainer
        self._changed = threading.Condition()
        self._items: deque[QueuedChunk] = deque()
        self._queued_steps = 0
        self._queued_bytes = 0
        self._taken_steps = 0
        self._pace = Pace()
        self._is_dirty = True

    @property
    def queued_steps(self) -> int:
        """Steps that wait."""
        return self._queued_steps

    @property
    def queued_bytes(self) -> int:
        """Memory that the waiting chunks hold."""
        return self._queued_bytes

    @property
    def queued_chunks(self) -> int:
        """Chunks that wait."""
        return len(self._items)

    @property
    def unsettled_steps(self) -> int:
        """Steps queued, or taken and not settled.

        What was taken since the trainer last set its pace is part of it: otherwise the steps on their way from the one
        count to the other would look like free room, and credit for them could not be taken back.
        """
        with self._changed:
            return self._queued_steps + self._taken_steps + self._pace.held_steps

    @property
    def pace(self) -> Pace:
        """What the trainer said last."""
        return self._pace

    @property
    def credit_bytes(self) -> int:
        """Memory that credit may be given for."""
        return self.capacity_bytes

    def has_room(self, resident_bytes: int) -> bool:
        """Says whether a chunk may be put. An empty queue takes any chunk, or a large one could never pass."""
        with self._changed:
            return not self._items or self._queued_bytes + resident_bytes <= self.capacity_bytes

    def put(self, item: QueuedChunk) -> None:
        """Appends a chunk.

        Raises:
            QueueFullError: there is no room for it; ask `has_room` first.
        """
        resident_bytes = item.resident_bytes
        with self._changed:
            if self._items and self._queued_bytes + resident_bytes > self.capacity_bytes:
                raise QueueFullError(
                    f"the queue holds {self._queued_bytes} of {self.capacity_bytes} bytes; no room for {resident_bytes}"
                )
            self._items.append(item)
            self._queued_bytes += resident_bytes
            self._queued_steps += item.chunk.rows
            self._changed.notify_all()
        if self._to_trainer is not None:
            self._to_trainer.set()

    def get(self, timeout_seconds: float = 0.0) -> list[QueuedChunk]:
        """Takes everything that waits, in the order of arrival; waits for the first chunk up to a time."""
        with self._changed:
            if not self._items and timeout_seconds > 0:
                self._changed.wait_for(lambda: bool(self._items), timeout_seconds)
            taken = list(self._items)
            if not taken:
                return taken
            self._items.clear()
            self._taken_steps += self._queued_steps
            self._queued_steps = 0
            self._queued_bytes = 0
            self._is_dirty = True
        self._wake_service()
        return taken

    def drain(self) -> list[QueuedChunk]:
        """Takes everything that waits: nothing is trained any more."""
        return self.get()

    def set_pace(self, pace: Pace) -> None:
        """Says what the trainer holds and how far actors may run ahead; covers all that was taken so far."""
        with self._changed:
            is_news = pace != self._pace or self._taken_steps > 0
            self._pace = pace
            self._taken_steps = 0
            self._is_dirty = self._is_dirty or is_news
        if is_news:
            self._wake_service()

    def touch(self) -> None:
        """Makes the service look again: something beside pace and room changed."""
        with self._changed:
            self._is_dirty = True
        self._wake_service()

    def take_dirty(self) -> bool:
        """Says whether anything but an arrival happened since the last call; for the service alone."""
        with self._changed:
            was_dirty, self._is_dirty = self._is_dirty, False
            return was_dirty

    def _wake_service(self) -> None:
        if self._to_service is not None:
            self._to_service.set()
