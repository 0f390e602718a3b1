"""The update buffer: segments in the ring that wait, and those that the next update takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.buffers.columns import ACTION_MASK, MEMORY, RingColumn
from learner.buffers.layout import ChunkSegments, fill, spans, split
from learner.buffers.ring import DeviceRing
from learner.buffers.staging import staging_for
from learner.buffers.transfer import to_device

log = structlog.get_logger(__name__)


class Place(NamedTuple):
    """Where a segment belongs; consecutive ones of an episode share what a critic remembers.

    Attributes:
        env: number of the environment, of its actor.
        agent: number of the agent there.
        episode: number of the episode.
        first_step: of the segment, in the episode.
        continues: the episode goes on after it.
    """

    env: int
    agent: int
    episode: int
    first_step: int
    continues: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive steps of one agent in the ring.

    Attributes:
        first_row: absolute ring row of the first step; the final row follows the last step.
        steps: how many.
        terminated: nothing bootstraps at the end.
        oldest_version: of its rows.
        actor_index: who sent it.
        masked: it came with action masks.
        place: where it belongs; None unless the ring holds memories.
        ended: its episode ended with it, in whatever way.
    """

    first_row: int
    steps: int
    terminated: bool
    oldest_version: int
    actor_index: int
    masked: bool
    place: Place | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the rows of one update are: R rows, of which N are steps and the others final rows.

    Attributes:
        rows: ``[R]`` int64, places in the ring, segment after segment.
        steps: ``[N]`` int64, which of the R are steps.
        step_rows: ``[N]`` int64, places of the steps in the ring.
        is_step: ``[R]`` float64, 1 for steps, 0 for final rows.
        continues: ``[R]`` float64, 1 where the next row is a step of the same segment, else 0.
        bootstraps: ``[R]`` float64, 1 where the value of the next row counts: 0 at terminal steps and final rows.
        longest: rows of the longest segment.
        masked: whether any segment came with action masks.
        segments: the segments themselves.
    """

    rows: Tensor
    steps: Tensor
    step_rows: Tensor
    is_step: Tensor
    continues: Tensor
    bootstraps: Tensor
    longest: int
    masked: bool
    segments: tuple[Segment, ...]

    @property
    def step_count(self) -> int:
        """N."""
        return int(self.steps.shape[0])

    @property
    def ended_episodes(self) -> int:
        """How many episodes end with one of the segments."""
        return sum(segment.ended for segment in self.segments)

    def actor_of(self, step: int) -> int:
        """Returns the actor that sent a step, 0 <= step < N."""
        ends = np.cumsum([segment.steps for segment in self.segments])
        return self.segments[int(np.searchsorted(ends, step, side="right"))].actor_index


class UpdateBuffer:
    """Segments in the order of arrival: first those taken for the next update, then those that wait.

    Args:
        columns: what a row holds.
        capacity_rows: rows of the ring, final rows included.
        block_rows: the most rows that are staged at once; a segment must fit.
        device: where the ring is.
        grows: a full ring becomes larger as long as the device has room; otherwise it takes no more.
    """

    def __init__(
        self,
        columns: Sequence[RingColumn],
        capacity_rows: int,
        block_rows: int,
        device: torch.device,
        *,
        grows: bool = False,
    ) -> None:
        self.ring = DeviceRing(columns, capacity_rows, device)
        self._staging = staging_for(self.ring, block_rows, device)
        self._block_rows = block_rows
        self._grows = grows
        self._is_recurrent = any(column.name == MEMORY for column in columns)
        self._device = device
        self._taken: list[Segment] = []
        self._waiting: deque[Segment] = deque()
        self.taken_steps = 0
        self.waiting_steps = 0

    @property
    def longest_segment(self) -> int:
        """The most steps of a segment that can be staged."""
        return self._block_rows - 1

    def add(self, chunk: Chunk, parts: ChunkSegments, chosen: NDArray[np.int64], actor_index: int) -> int:
        """Stages chosen segments of a chunk, as many as there is room for.

        Args:
            chunk: the chunk.
            parts: its segments.
            chosen: indices of the segments to stage, ascending; none longer than `longest_segment`.
            actor_index: who sent it.

        Returns:
            How many of the chosen ones were staged; the others need room.
        """
        staged = 0
        for run in split(chosen, parts.lengths, self._block_rows):
            rows = int(parts.lengths[run].sum()) + len(run)
            first = self._reserve(rows)
            if first is None:
                break
            fill(self._staging.open(first, rows), self.ring.columns, chunk, parts, run)
            self._staging.commit()
            places = _places(chunk, run) if self._is_recurrent else None
            self._append(first, parts, run, places, actor_index, masked=ACTION_MASK in chunk.columns)
            staged += len(run)
        return staged

    def _reserve(self, rows: int) -> int | None:
        """Reserves a block of rows, in a larger ring if need be and possible."""
        first = self.ring.reserve(rows)
        if first is not None or not self._grows:
            return first
        # By half at least, so that growing to n rows moves O(n) of them. A block may be skipped at the ring's end.
        before = self.ring.capacity_rows
        wanted = max(before + before // 2, self.ring.used_rows + 2 * self._block_rows)
        self._staging.join()
        try:
            self.ring.grow(wanted)
        except torch.OutOfMemoryError:
            self._grows = False  # what has no room waits on the host
            log.warning(
                "ring_cannot_grow",
                rows=before,
                wanted_rows=wanted,
                hint="the training device is out of memory: lower time_horizon or buffer_size, or use fewer agents",
            )
            return None
        return self.ring.reserve(rows)

    def _append(
        self,
        first: int,
        parts: ChunkSegments,
        run: NDArray[np.int64],
        places: list[Place] | None,
        actor_index: int,
        *,
        masked: bool,
    ) -> None:
        for number, index in enumerate(run.tolist()):
            steps = int(parts.lengths[index])
            end = int(parts.ends[index])
            terminated, ended = end == SegmentEnd.TERMINATED, end != SegmentEnd.CUT
            place = None if places is None else places[number]
            oldest = int(parts.oldest[index])
            self._waiting.append(Segment(first, steps, terminated, oldest, actor_index, masked, place, ended))
            self.waiting_steps += steps
            first += steps + 1

    def take(self, target_steps: int) -> None:
        """Takes segments, oldest first, for the next update until it has more than ``target_steps`` steps."""
        while self._waiting and self.taken_steps <= target_steps:
            self._take_first()

    def take_older(self, version: int) -> None:
        """Takes more segments, in the order of arrival, until none that waits has rows older than ``version``."""
        last = 0
        for position, segment in enumerate(self._waiting, 1):
            if segment.oldest_version < version:
                last = position
        for _ in range(last):
            self._take_first()

    def _take_first(self) -> None:
        segment = self._waiting.popleft()
        self.waiting_steps -= segment.steps
        self._taken.append(segment)
        self.taken_steps += segment.steps

    def plan(self) -> Plan:
        """Says where the rows of the taken segments are; to be called when there is at least one."""
        self._staging.join()
        steps = np.array([segment.steps for segment in self._taken], np.int64)
        rows = self.ring.places(spans(np.array([segment.first_row for segment in self._taken], np.int64), steps + 1))
        finals = np.cumsum(steps + 1) - 1
        is_step = np.ones(len(rows))
        is_step[finals] = 0.0
        continues = is_step.copy()
        continues[finals - 1] = 0.0
        bootstraps = is_step.copy()
        bootstraps[finals - 1] = [0.0 if segment.terminated else 1.0 for segment in self._taken]
        positions = np.flatnonzero(is_step)
        return Plan(
            rows=self._to_device(rows),
            steps=self._to_device(positions),
            step_rows=self._to_device(rows[positions]),
            is_step=self._to_device(is_step),
            continues=self._to_device(continues),
            bootstraps=self._to_device(bootstraps),
            longest=int(steps.max()) + 1,
            masked=any(segment.masked for segment in self._taken),
            segments=tuple(self._taken),
        )

    def settle(self) -> int:
        """Forgets the taken segments after their update and frees their rows; returns their steps."""
        steps = self.taken_steps
        self._taken.clear()
        self.taken_steps = 0
        self._free()
        return steps

    def drop_waiting(self, oldest_version: int) -> int:
        """Drops waiting segments with rows older than a version and closes the gaps; returns their steps.

        To be called when a version was completed, before the next `take`. The ring then has no gaps, so that what one
        update needs always fits.
        """
        kept = [segment for segment in self._waiting if segment.oldest_version >= oldest_version]
        dropped = self.waiting_steps - sum(segment.steps for segment in kept)
        if dropped:
            self._staging.join()
            self._waiting = deque(self._compacted(kept))
            self.waiting_steps -= dropped
        return dropped

    def clear(self) -> int:
        """Forgets every segment; returns their steps."""
        steps = self.taken_steps + self.waiting_steps
        self._waiting.clear()
        self.waiting_steps = 0
        self.settle()
        return steps

    def release(self) -> None:
        """Gives the memory of an empty buffer back; nothing can be added after that."""
        self.ring.release()
        self._staging = staging_for(self.ring, 0, self._device)

    def _compacted(self, kept: list[Segment]) -> list[Segment]:
        lengths = np.array([segment.steps + 1 for segment in kept], np.int64)
        row = self.ring.compact(spans(np.array([segment.first_row for segment in kept], np.int64), lengths))
        moved = []
        for segment in kept:
            moved.append(replace(segment, first_row=row))
            row += segment.steps + 1
        return moved

    def _free(self) -> None:
        self.ring.free_before(self._waiting[0].first_row if self._waiting else None)

    def _to_device(self, array: NDArray[np.int64] | NDArray[np.float64]) -> Tensor:
        return to_device(array, self._device)


def _places(chunk: Chunk, run: NDArray[np.int64]) -> list[Place]:
    """Reads where segments belong."""
    names = ("env", "agent", "episode", "first_step")
    columns = [chunk.columns[name][run].tolist() for name in names]
    continues = (chunk.columns["end"][run] == SegmentEnd.CUT).tolist()
    return [Place(*values) for values in zip(*columns, continues, strict=True)]
