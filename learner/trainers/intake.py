"""From chunks of the queue to segments in the update buffer, and the reasons why some never get there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import Purpose

from learner.device.buffer import UpdateBuffer
from learner.device.layout import ChunkSegments, segments_of
from learner.ingest.ledger import Ledger
from learner.ingest.queue import QueuedChunk

GENERATION = "generation"
STALE = "stale"
NOT_FOR_TRAINING = "not_for_training"
TOO_LONG = "too_long"


@dataclass(slots=True)
class _Backlog:
    """A chunk of which some segments are not staged yet."""

    item: QueuedChunk
    parts: ChunkSegments
    chosen: NDArray[np.int64]

    @property
    def steps(self) -> int:
        return int(self.parts.lengths[self.chosen].sum())


class Intake:
    """Checks what comes out of the queue and stages it while there is room. Every step it drops is in the books.

    Args:
        behavior: its name in the books.
        buffer: where segments go.
        ledger: the books.
        generation: of the policies whose steps are accepted.
    """

    def __init__(self, behavior: str, buffer: UpdateBuffer, ledger: Ledger, generation: int) -> None:
        self.buffer = buffer
        self._behavior = behavior
        self._ledger = ledger
        self._generation = generation
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
        chunk = item.chunk
        if chunk.segments == 0:
            return
        if chunk.generation != self._generation:
            self.drop(GENERATION, chunk.rows)
            return
        parts = segments_of(chunk)
        fits = parts.lengths <= self.buffer.longest_segment
        purposes = chunk.columns.get("purpose")
        trains = np.ones_like(fits) if purposes is None else purposes <= Purpose.TRAIN
        self.drop(TOO_LONG, int(parts.lengths[~fits].sum()))
        self.drop(NOT_FOR_TRAINING, int(parts.lengths[fits & ~trains].sum()))
        entry = _Backlog(item, parts, np.flatnonzero(fits & trains))
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

    def drop(self, reason: str, steps: int) -> None:
        """Enters dropped steps in the books."""
        if steps:
            self._ledger.drop_queued(self._behavior, reason, steps)
