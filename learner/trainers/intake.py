"""From chunks of the queue to segments in the update buffer, and the reasons why some never get there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learner.buffers.buffer import UpdateBuffer
from learner.buffers.layout import ChunkSegments
from learner.ingest.ledger import Ledger
from learner.ingest.queue import QueuedChunk
from learner.trainers.sieve import Sieve

STALE = "stale"


@dataclass(slots=True)
class _Backlog:
    """A chunk of which some segments are not staged yet."""

    item: QueuedChunk
    parts: ChunkSegments
    chosen: NDArray[np.int64]

    @property
    def steps(self) -> int:
        return int(self.parts.lengths[self.chosen].sum())


class Intake(Sieve):
    """Checks what comes out of the queue and stages it while there is room. Every step it drops is in the books.

    Args:
        behavior: its name in the books.
        buffer: where segments go.
        ledger: the books.
        generation: of the policies whose steps are accepted.
    """

    def __init__(self, behavior: str, buffer: UpdateBuffer, ledger: Ledger, generation: int) -> None:
        super().__init__(behavior, ledger, generation)
        self.buffer = buffer
        self._backlog: deque[_Backlog] = deque()
        self._backlog_steps = 0

    @property
    def staged_steps(self) -> int:
        """Steps that wait for room in the ring."""
        return self._backlog_steps

    @property
    def held_steps(self) -> int:
        """Steps that were taken from the queue and have no fate yet."""
        return self._backlog_steps + self.buffer.waiting_steps + self.buffer.taken_steps

    def receive(self, item: QueuedChunk) -> None:
        """Takes a chunk over from the queue; `stage` moves it on."""
        sifted = self.sift(item.chunk, self.buffer.longest_segment)
        if sifted is None:
            return
        entry = _Backlog(item, sifted.parts, sifted.chosen)
        self._backlog.append(entry)
        self._backlog_steps += entry.steps

    def stage(self, oldest_version: int) -> None:
        """Moves what was received into the ring, in order, until the ring is full.

        Args:
            oldest_version: segments with older rows are dropped.
        """
        while self._backlog:
            entry = self._backlog[0]
            steps = entry.steps
            stale = entry.parts.oldest[entry.chosen] < oldest_version
            if stale.any():
                self.drop(STALE, int(entry.parts.lengths[entry.chosen[stale]].sum()))
                entry.chosen = entry.chosen[~stale]
            staged = self.buffer.add(entry.item.chunk, entry.parts, entry.chosen, entry.item.actor_index)
            entry.chosen = entry.chosen[staged:]
            self._backlog_steps += entry.steps - steps
            if len(entry.chosen):
                return
            self._backlog.popleft()

    def new_version(self, oldest_version: int) -> None:
        """Drops staged segments that a completed update has made too old."""
        self.drop(STALE, self.buffer.drop_waiting(oldest_version))

    def clear(self, reason: str) -> None:
        """Drops everything that has no fate yet."""
        steps = self._backlog_steps + self.buffer.clear()
        self._backlog.clear()
        self._backlog_steps = 0
        self.drop(reason, steps)
