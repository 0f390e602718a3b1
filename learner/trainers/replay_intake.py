"""From chunks of the queue to replay memory, and the reasons why some steps never get there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from torch import Tensor

from learner.buffers.layout import ChunkSegments
from learner.buffers.replay import ReplayMemory
from learner.ingest.ledger import Ledger
from learner.ingest.queue import QueuedChunk
from learner.trainers.sieve import Sieve


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A chunk that waits, and which of its segments are to be trained."""

    item: QueuedChunk
    parts: ChunkSegments
    chosen: NDArray[np.int64]
    steps: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What entered the memory.

    Attributes:
        steps: how many.
        places: where they are, ``[N]`` int64; valid until the next are taken.
        ended_episodes: how many episodes ended with one of them.
    """

    steps: int
    places: Tensor
    ended_episodes: int


class ReplayIntake(Sieve):
    """Checks what comes out of the queue and lets it wait until it may enter the memory. Every fate is in the books.

    Args:
        behavior: its name in the books.
        memory: where segments go.
        ledger: the books.
        generation: of the policies whose steps are accepted.

    Attributes:
        waiting_steps: checked, not in the memory.
    """

    def __init__(self, behavior: str, memory: ReplayMemory, ledger: Ledger, generation: int) -> None:
        super().__init__(behavior, ledger, generation)
        self.waiting_steps = 0
        self._memory = memory
        self._waiting: deque[_Waiting] = deque()

    def receive(self, item: QueuedChunk) -> None:
        """Takes a chunk over from the queue."""
        sifted = self.sift(item.chunk, self._memory.size.block_rows - 1)
        if sifted is not None and len(sifted.chosen):
            parts, chosen = sifted
            entry = _Waiting(item, parts, chosen, int(parts.lengths[chosen].sum()))
            self._waiting.append(entry)
            self.waiting_steps += entry.steps

    def take(self) -> Taken | None:
        """Moves the next chunk into the memory; its steps count as trained from here on. None if none waits."""
        if not self._waiting:
            return None
        entry = self._waiting.popleft()
        self.waiting_steps -= entry.steps
        places = self._memory.add(entry.item.chunk, entry.parts, entry.chosen)
        self._ledger.trained(self._behavior, entry.steps)
        ended = entry.parts.ends[entry.chosen] != SegmentEnd.CUT
        return Taken(entry.steps, places, int(ended.sum()))

    def clear(self, reason: str) -> None:
        """Drops everything that waits."""
        steps, self.waiting_steps = self.waiting_steps, 0
        self._waiting.clear()
        self.drop(reason, steps)
