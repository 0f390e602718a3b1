"""What of a chunk may be trained, whatever becomes of it then; the rest leaves the books at once, with its reason."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import Purpose

from learner.buffers.layout import ChunkSegments, segments_of
from learner.ingest.ledger import Ledger

GENERATION = "generation"
NOT_FOR_TRAINING = "not_for_training"
TOO_LONG = "too_long"


class Sifted(NamedTuple):
    """A chunk of which some may be trained.

    Attributes:
        parts: all its segments.
        chosen: those that may be, int64 ascending; possibly none.
    """

    parts: ChunkSegments
    chosen: NDArray[np.int64]


class Sieve:
    """Checks the chunks of one behavior. Every step it drops is in the books.

    Args:
        behavior: its name in the books.
        ledger: the books.
        generation: of the policies whose steps are accepted.
    """

    def __init__(self, behavior: str, ledger: Ledger, generation: int) -> None:
        self._behavior = behavior
        self._ledger = ledger
        self._generation = generation

    def sift(self, chunk: Chunk, longest_segment: int) -> Sifted | None:
        """Chooses the segments that may be trained; None if the chunk has no segments, or is of another generation.

        Args:
            chunk: from the queue.
            longest_segment: steps that a place for segments has room for; longer ones are dropped.
        """
        if chunk.segments == 0:
            return None
        if chunk.generation != self._generation:
            self.drop(GENERATION, chunk.rows)
            return None
        parts = segments_of(chunk)
        fits = parts.lengths <= longest_segment
        purposes = chunk.columns.get("purpose")
        trains = np.ones_like(fits) if purposes is None else purposes <= Purpose.TRAIN
        self.drop(TOO_LONG, int(parts.lengths[~fits].sum()))
        self.drop(NOT_FOR_TRAINING, int(parts.lengths[fits & ~trains].sum()))
        return Sifted(parts, np.flatnonzero(fits & trains))

    def drop(self, reason: str, steps: int) -> None:
        """Enters dropped steps in the books."""
        if steps:
            self._ledger.drop_queued(self._behavior, reason, steps)
