"""Moves chunks from the queue to the update buffer or the replay memory, and settles the steps that reach neither."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import Purpose, SegmentEnd
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.link.to_trainers import Experience
from learner.training.buffers.buffer import UpdateBuffer
from learner.training.buffers.groups import is_too_large, whole
from learner.training.buffers.layout import ChunkSegments, segments_of
from learner.training.buffers.replay import ReplayMemory
from learner.training.trainers.outcome_report import OutcomeReport

GENERATION = "generation"
MATE = "mate"
NOT_FOR_TRAINING = "not_for_training"
STALE = "stale"
TOO_LONG = "too_long"


@dataclass(slots=True)
class _Waiting:
    """A waiting chunk and its segments to train."""

    item: Experience
    parts: ChunkSegments
    chosen: NDArray[np.int64]

    @property
    def steps(self) -> int:
        return int(self.parts.lengths[self.chosen].sum())


def for_training(chunk: Chunk) -> NDArray[np.bool_]:
    """Returns which segments of a chunk may be trained, ``[S]``, and not, for example, only evaluated."""
    purposes = chunk.columns.get("purpose")
    return np.ones(chunk.segments, np.bool_) if purposes is None else purposes <= Purpose.TRAIN


class ChunkFilter:
    """Keeps the trainable segments of one behavior and settles every step that it drops.

    Args:
        outcomes: Settles the steps.
        generation: Generation of the policies whose steps are accepted.
        longest_segment: Most steps of a segment; longer segments are dropped.
        grouped: Whether group mates are trained together: if one of their segments is dropped, so are the others.

    Attributes:
        waiting_steps: Checked steps that have not been moved yet.
    """

    def __init__(
        self, outcomes: OutcomeReport, generation: int, longest_segment: int, *, grouped: bool = False
    ) -> None:
        self.waiting_steps = 0
        self._grouped = grouped
        self._outcomes = outcomes
        self._generation = generation
        self._longest_segment = longest_segment
        self._waiting: deque[_Waiting] = deque()

    def receive(self, item: Experience) -> None:
        """Takes a chunk from the queue; its trainable segments wait."""
        chunk = item.chunk
        if chunk.segments == 0:
            return
        if chunk.generation != self._generation:
            self.drop_whole(GENERATION, item)
            return
        parts = segments_of(chunk, grouped=self._grouped)
        fits = parts.lengths <= self._longest_segment
        if parts.bundles is not None:
            fits &= _bundles_fit(parts)
        trains = for_training(chunk)
        self._drop_some(TOO_LONG, item, parts, np.flatnonzero(~fits))
        self._drop_some(NOT_FOR_TRAINING, item, parts, np.flatnonzero(fits & ~trains))
        chosen = self._with_mates(item, parts, np.flatnonzero(fits & trains))
        if len(chosen):
            entry = _Waiting(item, parts, chosen)
            self._waiting.append(entry)
            self.waiting_steps += entry.steps

    def _with_mates(self, item: Experience, parts: ChunkSegments, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Drops chosen segments of which a mate's is not chosen; returns the others, bundle after bundle."""
        if parts.bundles is None:
            return chosen
        kept = whole(chosen, parts.bundles)
        self._drop_some(MATE, item, parts, np.setdiff1d(chosen, kept))
        return kept

    def drop(self, reason: str, steps: int) -> None:
        """Settles steps as dropped."""
        self._outcomes.drop(reason, steps)

    def drop_whole(self, reason: str, item: Experience) -> None:
        """Settles all steps of a chunk as dropped."""
        self._note(reason, item, np.arange(item.chunk.segments))
        self.drop(reason, item.chunk.rows)

    def _drop_some(self, reason: str, item: Experience, parts: ChunkSegments, segments: NDArray[np.int64]) -> None:
        """Settles the steps of some segments of a chunk as dropped."""
        self._note(reason, item, segments)
        self.drop(reason, int(parts.lengths[segments].sum()))

    def _note(self, reason: str, item: Experience, segments: NDArray[np.int64]) -> None:
        """Records segments that are dropped, before they are settled."""
        if self._outcomes.history is not None:
            self._outcomes.history.dropped(reason, [(item.sequence, index) for index in segments.tolist()])

    def clear(self, reason: str) -> None:
        """Drops all waiting steps."""
        for entry in self._waiting:
            self._note(reason, entry.item, entry.chosen)
        steps, self.waiting_steps = self.waiting_steps, 0
        self._waiting.clear()
        self.drop(reason, steps)


def _bundles_fit(parts: ChunkSegments) -> NDArray[np.bool_]:
    """Returns for each segment whether its bundle is small enough, ``[S]``."""
    fits = np.ones(len(parts.lengths), np.bool_)
    if parts.bundles is None:
        return fits
    counts = np.bincount(parts.bundles, minlength=len(fits))
    for first in np.flatnonzero(counts > 1).tolist():
        members = np.flatnonzero(parts.bundles == first).tolist()
        fits[members] = not is_too_large([parts.groups[index] for index in members])
    return fits


class BufferIntake(ChunkFilter):
    """Stages segments in the update buffer while there is room.

    Args:
        buffer: Receives the segments.
        outcomes: Settles the steps.
        generation: Generation of the policies whose steps are accepted.
    """

    def __init__(self, buffer: UpdateBuffer, outcomes: OutcomeReport, generation: int) -> None:
        super().__init__(outcomes, generation, buffer.longest_segment, grouped=buffer.grouped)
        self.buffer = buffer

    def stage(self, oldest_version: int) -> None:
        """Moves waiting segments into the ring, in order, until the ring is full.

        Args:
            oldest_version: Segments with older rows are dropped.
        """
        while self._waiting:
            entry = self._waiting[0]
            steps = entry.steps
            stale = entry.parts.oldest[entry.chosen] < oldest_version
            if stale.any():
                self._drop_some(STALE, entry.item, entry.parts, entry.chosen[stale])
                entry.chosen = self._of_whole_bundles(entry, stale)
            item = entry.item
            staged = self.buffer.add(item.chunk, entry.parts, entry.chosen, item.actor_index, item.sequence)
            entry.chosen = entry.chosen[staged:]
            self.waiting_steps += entry.steps - steps
            if len(entry.chosen):
                return
            self._waiting.popleft()

    def _of_whole_bundles(self, entry: _Waiting, stale: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Returns the chosen segments that are not stale and whose mates' are not; drops the mates' of stale ones."""
        kept = entry.chosen[~stale]
        if entry.parts.bundles is None:
            return kept
        bundles = entry.parts.bundles
        whole_ones = kept[~np.isin(bundles[kept], bundles[entry.chosen[stale]])]
        self._drop_some(MATE, entry.item, entry.parts, np.setdiff1d(kept, whole_ones))
        return whole_ones

    def new_version(self, oldest_version: int) -> None:
        """Drops staged segments that a completed update made too old."""
        history = self._outcomes.history
        before = [] if history is None else self.buffer.waiting_sources()
        steps = self.buffer.drop_waiting(oldest_version)
        if history is not None:
            kept = set(self.buffer.waiting_sources())
            history.dropped(STALE, [source for source in before if source not in kept])
        self.drop(STALE, steps)

    def clear(self, reason: str) -> None:
        """Drops all steps that are not settled."""
        if self._outcomes.history is not None:
            sources = [*self.buffer.taken_sources(), *self.buffer.waiting_sources()]
            self._outcomes.history.dropped(reason, sources)
        self.waiting_steps += self.buffer.clear()
        super().clear(reason)


@dataclass(frozen=True, slots=True)
class Taken:
    """The steps that entered the replay memory together.

    Attributes:
        steps: Number of steps.
        places: Their places, ``[N]`` int64; valid until the next steps are taken.
        ended_episodes: Number of episodes that ended with one of these steps.
    """

    steps: int
    places: Tensor
    ended_episodes: int


class ReplayIntake(ChunkFilter):
    """Holds segments until they may enter the replay memory.

    Args:
        memory: Receives the segments.
        outcomes: Settles the steps.
        generation: Generation of the policies whose steps are accepted.
    """

    def __init__(self, memory: ReplayMemory, outcomes: OutcomeReport, generation: int) -> None:
        super().__init__(outcomes, generation, memory.size.block_rows - 1)
        self._memory = memory

    def take(self) -> Taken | None:
        """Moves the next chunk into the memory, where its steps count as trained. Returns None if no chunk waits."""
        if not self._waiting:
            return None
        entry = self._waiting.popleft()
        steps = entry.steps
        self.waiting_steps -= steps
        places = self._memory.add(entry.item.chunk, entry.parts, entry.chosen)
        if self._outcomes.history is not None:
            sources = [(entry.item.sequence, index) for index in entry.chosen.tolist()]
            self._outcomes.history.remembered(sources)
        self._outcomes.trained(steps)
        ended = entry.parts.ends[entry.chosen] != SegmentEnd.CUT
        return Taken(steps, places, int(ended.sum()))
