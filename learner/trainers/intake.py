"""From chunks of the queue to the update buffer or the replay memory, and the reasons why some steps never get there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import Purpose, SegmentEnd
from torch import Tensor

from learner.buffers.buffer import UpdateBuffer
from learner.buffers.layout import ChunkSegments, segments_of
from learner.buffers.replay import ReplayMemory
from learner.ingest.ledger import Ledger
from learner.link.experience import QueuedChunk

GENERATION = "generation"
NOT_FOR_TRAINING = "not_for_training"
STALE = "stale"
TOO_LONG = "too_long"


@dataclass(slots=True)
class _Waiting:
    """A chunk that waits, and which of its segments are to be trained."""

    item: QueuedChunk
    parts: ChunkSegments
    chosen: NDArray[np.int64]

    @property
    def steps(self) -> int:
        return int(self.parts.lengths[self.chosen].sum())


class ChunkFilter:
    """Keeps the segments of one behavior that may be trained; every step it drops is in the books.

    Args:
        behavior: its name in the books.
        ledger: the books.
        generation: of the policies whose steps are accepted.
        longest_segment: steps of a segment; longer ones are dropped.

    Attributes:
        waiting_steps: checked, and not moved on.
    """

    def __init__(self, behavior: str, ledger: Ledger, generation: int, longest_segment: int) -> None:
        self.waiting_steps = 0
        self._behavior = behavior
        self._ledger = ledger
        self._generation = generation
        self._longest_segment = longest_segment
        self._waiting: deque[_Waiting] = deque()

    def receive(self, item: QueuedChunk) -> None:
        """Takes a chunk over from the queue; those of its segments that may be trained wait."""
        chunk = item.chunk
        if chunk.segments == 0:
            return
        if chunk.generation != self._generation:
            self.drop(GENERATION, chunk.rows)
            return
        parts = segments_of(chunk)
        fits = parts.lengths <= self._longest_segment
        purposes = chunk.columns.get("purpose")
        trains = np.ones_like(fits) if purposes is None else purposes <= Purpose.TRAIN
        self.drop(TOO_LONG, int(parts.lengths[~fits].sum()))
        self.drop(NOT_FOR_TRAINING, int(parts.lengths[fits & ~trains].sum()))
        chosen = np.flatnonzero(fits & trains)
        if len(chosen):
            entry = _Waiting(item, parts, chosen)
            self._waiting.append(entry)
            self.waiting_steps += entry.steps

    def drop(self, reason: str, steps: int) -> None:
        """Enters dropped steps in the books."""
        if steps:
            self._ledger.drop_queued(self._behavior, reason, steps)

    def clear(self, reason: str) -> None:
        """Drops everything that waits."""
        steps, self.waiting_steps = self.waiting_steps, 0
        self._waiting.clear()
        self.drop(reason, steps)


class BufferIntake(ChunkFilter):
    """Stages segments in the update buffer while there is room.

    Args:
        behavior: its name in the books.
        buffer: where segments go.
        ledger: the books.
        generation: of the policies whose steps are accepted.
    """

    def __init__(self, behavior: str, buffer: UpdateBuffer, ledger: Ledger, generation: int) -> None:
        super().__init__(behavior, ledger, generation, buffer.longest_segment)
        self.buffer = buffer

    @property
    def held_steps(self) -> int:
        """Steps that were taken from the queue and have no fate yet."""
        return self.waiting_steps + self.buffer.waiting_steps + self.buffer.taken_steps

    def stage(self, oldest_version: int) -> None:
        """Moves what was received into the ring, in order, until the ring is full.

        Args:
            oldest_version: segments with older rows are dropped.
        """
        while self._waiting:
            entry = self._waiting[0]
            steps = entry.steps
            stale = entry.parts.oldest[entry.chosen] < oldest_version
            if stale.any():
                self.drop(STALE, int(entry.parts.lengths[entry.chosen[stale]].sum()))
                entry.chosen = entry.chosen[~stale]
            staged = self.buffer.add(entry.item.chunk, entry.parts, entry.chosen, entry.item.actor_index)
            entry.chosen = entry.chosen[staged:]
            self.waiting_steps += entry.steps - steps
            if len(entry.chosen):
                return
            self._waiting.popleft()

    def new_version(self, oldest_version: int) -> None:
        """Drops staged segments that a completed update has made too old."""
        self.drop(STALE, self.buffer.drop_waiting(oldest_version))

    def clear(self, reason: str) -> None:
        """Drops everything that has no fate yet."""
        self.waiting_steps += self.buffer.clear()
        super().clear(reason)


@dataclass(frozen=True, slots=True)
class Taken:
    """The steps that entered the replay memory together.

    Attributes:
        steps: how many.
        places: where they are, ``[N]`` int64; valid until the next are taken.
        ended_episodes: how many episodes ended with one of them.
    """

    steps: int
    places: Tensor
    ended_episodes: int


class ReplayIntake(ChunkFilter):
    """Lets segments wait until they may enter the replay memory.

    Args:
        behavior: its name in the books.
        memory: where segments go.
        ledger: the books.
        generation: of the policies whose steps are accepted.
    """

    def __init__(self, behavior: str, memory: ReplayMemory, ledger: Ledger, generation: int) -> None:
        super().__init__(behavior, ledger, generation, memory.size.block_rows - 1)
        self._memory = memory

    def take(self) -> Taken | None:
        """Moves the next chunk into the memory; its steps count as trained from here on. None if none waits."""
        if not self._waiting:
            return None
        entry = self._waiting.popleft()
        steps = entry.steps
        self.waiting_steps -= steps
        places = self._memory.add(entry.item.chunk, entry.parts, entry.chosen)
        self._ledger.trained(self._behavior, steps)
        ended = entry.parts.ends[entry.chosen] != SegmentEnd.CUT
        return Taken(steps, places, int(ended.sum()))
