"""The queue of a behavior in lock-step: a trainer gets nothing until the round is complete, and then all of it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from learner.ingest.queue import Pace, QueuedChunk, TrajectoryQueue
from learner.ingest.round_order import in_order
from learner.ingest.wakeup import Wakeup

UNLIMITED_STEPS = 2**31
UNLIMITED_BYTES = 2**60
"""Credit in a round, whose quota is what limits it."""


@dataclass(frozen=True, slots=True)
class ReleasedRound:
    """What a round brought.

    Attributes:
        items: one for each actor and team, in order.
        strangers: chunks of sessions that do not take part; their steps have no fate yet.
    """

    items: tuple[QueuedChunk, ...]
    strangers: tuple[QueuedChunk, ...]


class RoundQueue(TrajectoryQueue):
    """Chunks wait until `release`, whoever asks for them; the chunks that end an actor's round are noted as they come.

    Args:
        capacity_bytes: see `TrajectoryQueue`; a whole round must fit.
        memory_stride: rows between two records of memory; 0 for a policy without memory.
        to_service: see `TrajectoryQueue`.
        to_trainer: see `TrajectoryQueue`.

    Attributes:
        is_full: something of a round had no room; it would wait for ever, since the round cannot end without it.
    """

    def __init__(
        self,
        capacity_bytes: int,
        *,
        memory_stride: int = 0,
        to_service: Wakeup | None = None,
        to_trainer: threading.Event | None = None,
    ) -> None:
        super().__init__(capacity_bytes, to_service=to_service, to_trainer=to_trainer)
        self._memory_stride = memory_stride
        self._ended: dict[str, int] = {}
        self._released: list[QueuedChunk] = []
        self.is_full = False

    @property
    def credit_bytes(self) -> int:
        """No limit: an actor without credit would keep its round from ending."""
        return UNLIMITED_BYTES

    @property
    def ended(self) -> Mapping[str, int]:
        """The newest round that each session has ended."""
        return self._ended

    @property
    def has_released(self) -> bool:
        """Whether a round was released that the trainer has not taken."""
        return bool(self._released)

    def has_room(self, resident_bytes: int) -> bool:
        """Says whether a chunk may be put, and notes it if not."""
        has_room = super().has_room(resident_bytes)
        if not has_room:
            self.is_full = True
            if self._to_trainer is not None:
                self._to_trainer.set()
        return has_room

    def put(self, item: QueuedChunk) -> None:
        """Appends a chunk.

        Raises:
            QueueFullError: there is no room for it.
        """
        if item.chunk.lockstep_round:
            # Before the chunk itself: who sees the trainer's event must see this, too.
            self._ended[item.session_id] = item.chunk.lockstep_round
        super().put(item)

    def release(self, players: Collection[str]) -> ReleasedRound:
        """Hands the trainer what is here, sorted.

        Args:
            players: the sessions that took part.
        """
        items = super().get()
        for session_id in [each for each in self._ended if each not in players]:
            del self._ended[session_id]
        round_ = ReleasedRound(
            items=tuple(in_order((item for item in items if item.session_id in players), self._memory_stride)),
            strangers=tuple(item for item in items if item.session_id not in players),
        )
        self._released += round_.items
        return round_

    def get(self, timeout_seconds: float = 0.0) -> list[QueuedChunk]:
        """Takes what was released, and nothing else; never waits."""
        del timeout_seconds
        taken, self._released = self._released, []
        return taken

    def drain(self) -> list[QueuedChunk]:
        """Takes everything, released or not: nothing is trained any more."""
        return [*self.get(), *super().get()]

    def set_pace(self, pace: Pace) -> None:
        """Says what the trainer holds; rounds, and nothing else, keep actors from running ahead."""
        super().set_pace(replace(pace, ahead_limit_steps=UNLIMITED_STEPS, hold=None, until_version=0))
