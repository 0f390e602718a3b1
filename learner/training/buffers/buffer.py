"""The update buffer: waiting segments in the ring, and those taken for the next update."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from rollcast.enums import GroupEnd, SegmentEnd
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.link.split import ranks_of
from learner.training.buffers.columns import ACTION_MASK, MEMORY, RingColumn
from learner.training.buffers.groups import GroupPlace, members_of
from learner.training.buffers.layout import ChunkSegments, fill, spans, split, split_bundles
from learner.training.buffers.ring import DeviceRing
from learner.training.buffers.staging import staging_for
from learner.training.buffers.transfer import to_device

log = structlog.get_logger(__name__)


class Place(NamedTuple):
    """The position of a segment; consecutive segments of an episode share the critic's memory.

    Attributes:
        env: Number of the environment at its actor.
        agent: Number of the agent in the environment.
        episode: Number of the episode.
        first_step: First step of the segment in the episode.
        continues: Whether the episode continues after the segment.
    """

    env: int
    agent: int
    episode: int
    first_step: int
    continues: bool


RowSource: TypeAlias = tuple[int, int]
"""Number of a chunk on the link, and index of a segment in it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive steps of one agent in the ring.

    Attributes:
        first_row: Absolute ring row of the first step; the final row follows the last step.
        steps: Number of steps.
        terminated: Whether its last step is terminal, so that the value after it does not count.
        oldest_version: Oldest policy version of its rows.
        actor_index: Index of the actor that sent it.
        masked: Whether it has action masks.
        place: Position of the segment; None unless the ring holds memories.
        ended: Whether its episode ended with it, in any way.
        begins: Whether its episode began with it.
        group: Position in its group, with a bundle number that is unique in the buffer; None if groups do not matter.
        source: Number of the chunk on the link, and index of the segment in the chunk.
        is_own: Whether this learner trains it; the rows of the others are not filled here.
    """

    first_row: int
    steps: int
    terminated: bool
    oldest_version: int
    actor_index: int
    masked: bool
    place: Place | None = None
    ended: bool = False
    begins: bool = False
    group: GroupPlace | None = None
    source: RowSource = (0, 0)
    is_own: bool = True

    @property
    def bundle(self) -> int:
        """Number of the bundle, of which all segments are trained in one update; 0 if groups do not matter."""
        return 0 if self.group is None else self.group.bundle

    @property
    def bootstraps(self) -> bool:
        """True if the value after its last step counts; in a group, until the group has ended."""
        return not self.terminated if self.group is None else self.group.end != GroupEnd.TERMINATED


@dataclass(frozen=True, slots=True)
class Members:
    """The group members present at each of R rows, on the device (see `learner.training.buffers.groups.Members`).

    Attributes:
        rows: ``[R, M]`` int64, indices among the R rows; the row's own agent first.
        present: ``[R, M]`` float32, 1 where there is an agent, otherwise 0.
    """

    rows: Tensor
    present: Tensor


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """The locations of the rows of one update: R rows, of which N are steps and the others final rows.

    Attributes:
        rows: ``[R]`` int64, places in the ring, segment after segment.
        steps: ``[N]`` int64, indices of the steps among the R rows.
        step_rows: ``[N]`` int64, places of the steps in the ring.
        is_step: ``[R]`` float64, 1 for steps, 0 for final rows.
        continues: ``[R]`` float64, 1 where the next row is a step of the same segment, otherwise 0.
        bootstraps: ``[R]`` float64, 1 where the value of the next row counts: 0 at terminal steps and final rows.
        begins: ``[R]`` float64, 1 for the first steps of episodes; of all steps if no segment begins an episode.
        longest: Rows of the longest segment.
        masked: Whether any segment has action masks.
        segments: The segments themselves.
        lengths: Steps of the taken segments of all learners.
        ended_episodes: Number of episodes, of all learners, that end with one of their segments.
        is_stand_in: Whether none of the rows counts: this learner has none, and these are in their place.
        terminated: ``[N]`` float64, 1 at the terminal step of an agent's episode.
        members: The group members present at each row; None if groups do not matter.
    """

    rows: Tensor
    steps: Tensor
    step_rows: Tensor
    is_step: Tensor
    continues: Tensor
    bootstraps: Tensor
    begins: Tensor
    longest: int
    masked: bool
    segments: tuple[Segment, ...]
    lengths: NDArray[np.int64]
    ended_episodes: int
    is_stand_in: bool
    terminated: Tensor
    members: Members | None = None

    @property
    def step_count(self) -> int:
        """Number of steps, N."""
        return int(self.steps.shape[0])

    @property
    def all_steps(self) -> int:
        """Number of steps of all learners."""
        return int(self.lengths.sum())

    def actor_of(self, step: int) -> int:
        """Returns the actor that sent a step, 0 <= step < N."""
        ends = np.cumsum([segment.steps for segment in self.segments])
        return self.segments[int(np.searchsorted(ends, step, side="right"))].actor_index


class UpdateBuffer:
    """Holds segments in order of arrival: first those taken for the next update, then the waiting ones.

    Each of several learners keeps a list of all segments, so that all take and drop the same without a word; only the
    rows of its own are filled, and only these enter its plan.

    Args:
        columns: Columns of a row.
        capacity_rows: Rows of the ring, final rows included.
        block_rows: Most rows staged at once; a segment must fit.
        device: Device of the ring.
        grows: Whether a full ring becomes larger as long as the device has room; otherwise it takes no more.
        grouped: Whether bundles of group mates stay together.
        rank: Number of this learner.
        ranks: Number of learners.
    """

    def __init__(
        self,
        columns: Sequence[RingColumn],
        capacity_rows: int,
        block_rows: int,
        device: torch.device,
        *,
        grows: bool = False,
        grouped: bool = False,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self._rank, self._ranks = rank, ranks
        self.ring = DeviceRing(columns, capacity_rows, device)
        self._staging = staging_for(self.ring, block_rows, device)
        self._block_rows = block_rows
        self._grows = grows
        self.grouped = grouped
        self._bundles = 0
        self._is_recurrent = any(column.name == MEMORY for column in columns)
        self._device = device
        self._taken: list[Segment] = []
        self._waiting: deque[Segment] = deque()
        self.taken_steps = 0
        self.waiting_steps = 0

    @property
    def longest_segment(self) -> int:
        """Most steps of a segment that can be staged."""
        return self._block_rows - 1

    def add(
        self, chunk: Chunk, parts: ChunkSegments, chosen: NDArray[np.int64], actor_index: int, number: int = 0
    ) -> int:
        """Stages chosen segments of a chunk, as many as fit.

        Args:
            chunk: The chunk.
            parts: Its segments.
            chosen: Indices of the segments to stage, ascending or bundle after bundle; none is longer than
                `longest_segment`.
            actor_index: Index of the actor that sent it.
            number: Number of the chunk on the link.

        Returns:
            Number of staged segments; the others need room.
        """
        if parts.bundles is None:
            return self._stage(chunk, parts, chosen, actor_index, number)
        staged = 0
        for run in split_bundles(chosen, parts.bundles, parts.lengths, self._block_rows):
            if not self._has_room(int(parts.lengths[run].sum()) + len(run)):
                break
            staged += self._stage(chunk, parts, run, actor_index, number)
        self._bundles += chunk.segments
        return staged

    def _has_room(self, rows: int) -> bool:
        """Returns whether bundles of ``rows`` rows fit, whose blocks may leave up to a block unused at the end."""
        wanted = self.ring.used_rows + rows + self._block_rows
        return self._grows or wanted <= self.ring.capacity_rows or not self.ring.used_rows

    def _stage(
        self, chunk: Chunk, parts: ChunkSegments, chosen: NDArray[np.int64], actor_index: int, number: int
    ) -> int:
        """Stages chosen segments, as many as fit; returns their number."""
        staged, own, masked = 0, self._are_own(chunk, actor_index), ACTION_MASK in chunk.columns
        for run in split(chosen, parts.lengths + 1, self._block_rows):
            rows = int(parts.lengths[run].sum()) + len(run)
            first = self._reserve(rows)
            if first is None:
                break
            fill(self._staging.open(first, rows), self.ring.columns, chunk, parts, run, own=own)
            self._staging.commit()
            places = _places(chunk, run) if self._is_recurrent else [None] * len(run)
            for index, place in zip(run.tolist(), places, strict=True):
                steps, end = int(parts.lengths[index]), int(parts.ends[index])
                group = parts.groups[index] if parts.groups else None
                self._waiting.append(
                    Segment(
                        first,
                        steps,
                        end == SegmentEnd.TERMINATED,
                        int(parts.oldest[index]),
                        actor_index,
                        masked,
                        place,
                        end != SegmentEnd.CUT,
                        bool(parts.begins[index]),
                        None if group is None else group._replace(bundle=self._bundles + group.bundle),
                        (number, index),
                        is_own=own is None or bool(own[index]),
                    )
                )
                self.waiting_steps += steps
                first += steps + 1
            staged += len(run)
        return staged

    def _are_own(self, chunk: Chunk, actor_index: int) -> NDArray[np.bool_] | None:
        """Returns for each segment of a chunk whether this learner trains it, ``[S]``; None for a single learner."""
        if self._ranks == 1:
            return None
        found: NDArray[np.bool_] = ranks_of(chunk, actor_index, self._ranks, grouped=self.grouped) == self._rank
        return found

    def _reserve(self, rows: int) -> int | None:
        """Reserves a block of rows, in a larger ring if necessary and possible."""
        first = self.ring.reserve(rows)
        if first is not None or not self._grows:
            return first
        # Grows by at least half, so that growing to n rows moves O(n) of them. A block may be skipped at the ring's
        # end.
        before = self.ring.capacity_rows
        wanted = max(before + before // 2, self.ring.used_rows + 2 * self._block_rows)
        self._staging.join()
        try:
            self.ring.grow(wanted)
        except torch.OutOfMemoryError:
            if self._ranks > 1:
                raise  # the other learners have room and would take other segments
            self._grows = False  # segments without room wait on the host
            log.warning(
                "ring_cannot_grow",
                rows=before,
                wanted_rows=wanted,
                hint="the training device is out of memory: lower time_horizon or buffer_size, or use fewer agents",
            )
            return None
        return self.ring.reserve(rows)

    def take(self, target_steps: int) -> None:
        """Takes segments for the next update, oldest first, until it has ``target_steps`` steps or more."""
        while self._waiting and self.taken_steps < target_steps:
            self._take_first()
        self._take_mates()

    def take_older(self, version: int) -> None:
        """Takes more segments, in order of arrival, until no waiting one has rows older than ``version``."""
        last = 0
        for position, segment in enumerate(self._waiting, 1):
            if segment.oldest_version < version:
                last = position
        for _ in range(last):
            self._take_first()
        self._take_mates()

    def _take_mates(self) -> None:
        """Takes the other segments of the bundle taken last."""
        while self._taken and self._waiting and self._taken[-1].bundle == self._waiting[0].bundle != 0:
            self._take_first()

    def _take_first(self) -> None:
        segment = self._waiting.popleft()
        self.waiting_steps -= segment.steps
        self._taken.append(segment)
        self.taken_steps += segment.steps

    def plan(self) -> UpdateRows:
        """Returns the locations of the rows of the taken segments that this learner trains; requires at least one segment.

        Without any, those of another learner stand in, whose rows do not count.
        """
        self._staging.join()
        own = [segment for segment in self._taken if segment.is_own]
        is_stand_in = not own
        if is_stand_in:
            own = [segment for segment in self._taken if segment.bundle == self._taken[0].bundle]
            own = own if self.grouped else own[:1]
        steps = np.array([segment.steps for segment in own], np.int64)
        rows = self.ring.places(spans(np.array([segment.first_row for segment in own], np.int64), steps + 1))
        finals = np.cumsum(steps + 1) - 1
        is_step = np.ones(len(rows))
        is_step[finals] = 0.0
        continues = is_step.copy()
        continues[finals - 1] = 0.0
        bootstraps = is_step.copy()
        bootstraps[finals - 1] = [segment.bootstraps for segment in own]
        terminated = np.zeros(len(rows))
        terminated[finals - 1] = [segment.terminated for segment in own]
        begins = np.zeros(len(rows))
        begins[finals - steps] = [segment.begins for segment in own]
        has_begins = any(segment.begins for segment in self._taken)
        positions = np.flatnonzero(is_step)
        return UpdateRows(
            rows=self._to_device(rows),
            steps=self._to_device(positions),
            step_rows=self._to_device(rows[positions]),
            is_step=self._to_device(is_step),
            continues=self._to_device(continues),
            bootstraps=self._to_device(bootstraps),
            begins=self._to_device(begins if has_begins else is_step),
            longest=int(steps.max()) + 1,
            masked=any(segment.masked for segment in own),
            segments=tuple(own),
            lengths=np.array([segment.steps for segment in self._taken], np.int64),
            ended_episodes=sum(segment.ended for segment in self._taken),
            is_stand_in=is_stand_in,
            terminated=self._to_device(terminated[positions]),
            members=self._members(own) if self.grouped else None,
        )

    def _members(self, segments: Sequence[Segment]) -> Members:
        """Returns the group members present at each row of segments."""
        found = members_of([segment.group for segment in segments if segment.group is not None])
        return Members(self._to_device(found.rows), to_device(found.present, self._device))

    def taken_sources(self) -> list[RowSource]:
        """Returns the sources of the segments taken for the next update."""
        return [segment.source for segment in self._taken]

    def waiting_sources(self) -> list[RowSource]:
        """Returns the sources of the segments that wait."""
        return [segment.source for segment in self._waiting]

    def settle(self) -> int:
        """Removes the taken segments after their update and frees their rows; returns their steps."""
        steps = self.taken_steps
        self._taken.clear()
        self.taken_steps = 0
        self._free()
        return steps

    def drop_waiting(self, oldest_version: int) -> int:
        """Drops waiting segments with rows older than a version and closes the gaps; returns their steps.

        Call it after a version was completed and before the next `take`. The ring then has no gaps, so that the rows of
        one update always fit. A bundle with such a row is dropped whole.
        """
        stale = {segment.bundle for segment in self._waiting if segment.oldest_version < oldest_version} - {0}
        kept = [
            segment
            for segment in self._waiting
            if segment.oldest_version >= oldest_version and segment.bundle not in stale
        ]
        dropped = self.waiting_steps - sum(segment.steps for segment in kept)
        if dropped:
            self._staging.join()
            self._waiting = deque(self._compacted(kept))
            self.waiting_steps -= dropped
        return dropped

    def clear(self) -> int:
        """Removes every segment; returns their steps."""
        steps = self.taken_steps + self.waiting_steps
        self._waiting.clear()
        self.waiting_steps = 0
        self.settle()
        return steps

    def release(self) -> None:
        """Frees the memory of an empty buffer; nothing can be added after that."""
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
    """Reads the positions of segments."""
    names = ("env", "agent", "episode", "first_step")
    columns = [chunk.columns[name][run].tolist() for name in names]
    continues = (chunk.columns["end"][run] == SegmentEnd.CUT).tolist()
    return [Place(*values) for values in zip(*columns, continues, strict=True)]
