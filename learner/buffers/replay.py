"""Replay memory: the newest steps, on the training device, drawn from at random.

Rows are those of the ring: a segment of n steps takes n + 1, the last of which holds what was seen after it. So what was
seen after a step is the row behind it, and no observation lies there twice, but where a segment was cut. Steps have
numbers of their own, in the order of arrival; a table says in which row each is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.buffers.columns import ACTION_MASK, MEMORY, REWARD, TERMINATED, RingColumn, step_columns
from learner.buffers.layout import ChunkSegments, fill, spans, split
from learner.buffers.replay_sequences import DrawnSequences, ReplaySequences, on_device
from learner.buffers.ring import BLOCK_BYTES, MAX_BLOCK_ROWS, DeviceRing
from learner.buffers.sequences import pack_with_next
from learner.buffers.staging import Block, staging_for
from learner.buffers.transfer import to_device

_FINAL_MASK = "final_action_mask"
_SHORT_SEGMENT_STEPS: Final = 4
"""Mean length of the segments for which there is room; with shorter ones a memory holds fewer steps."""

_TABLE_BYTES: Final = 9
"""Of each row: where its step is, and whether it was drawn."""


@dataclass(frozen=True, slots=True)
class ReplaySize:
    """Sizes of a replay memory.

    Attributes:
        capacity_steps: the most steps.
        capacity_rows: rows, those for what was seen after segments included.
        block_rows: of the largest block that is staged at once.
    """

    capacity_steps: int
    capacity_rows: int
    block_rows: int


def replay_columns(spec: BehaviorSpec, *, memory_size: int = 0, memory_stride: int = 0) -> tuple[RingColumn, ...]:
    """Returns the columns of a replay memory: what on-policy trainers keep, less what only they need.

    ``terminated`` is 1 where nothing follows a step. A mask also stands in final rows, for what may be done next.
    ``memory`` is what the policy remembered when it acted, at the first row of each sequence.

    Args:
        spec: what the behavior sees and does.
        memory_size: numbers of memory an agent; 0 = none.
        memory_stride: rows between two records of memory.
    """
    columns = step_columns(spec, torch.int32)
    columns.append(RingColumn(REWARD, torch.float32))
    columns.append(RingColumn(TERMINATED, torch.uint8))
    if memory_size:
        columns.append(RingColumn(MEMORY, torch.float32, (memory_size,), stride=memory_stride))
    return tuple(columns)


def replay_row_bytes(spec: BehaviorSpec, memory_size: int = 0) -> int:
    """Returns the bytes of one row, its tables included.

    Args:
        spec: what the behavior sees and does.
        memory_size: numbers of memory an agent; 0 = none.
    """
    return sum(column.row_bytes for column in replay_columns(spec, memory_size=memory_size)) + _TABLE_BYTES


def replay_size(row_bytes: int, *, buffer_size: int, time_horizon: int) -> ReplaySize:
    """Chooses the size of a replay memory.

    Args:
        row_bytes: what a row takes.
        buffer_size: the most steps.
        time_horizon: the longest segment, in steps.
    """
    fitting = min(MAX_BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes), buffer_size)
    block_rows = max(time_horizon + 1, fitting)
    finals = -(-buffer_size // min(time_horizon, _SHORT_SEGMENT_STEPS))
    # Blocks do not wrap: up to one block is skipped at the end, and one must fit behind what is held.
    return ReplaySize(buffer_size, buffer_size + finals + 2 * block_rows, block_rows)


class Places(NamedTuple):
    """Where B drawn steps are in `ReplayMemory.storage`.

    Attributes:
        rows: ``[B]`` int64, of the steps.
        next_rows: ``[B]`` int64, of what was seen after them.
    """

    rows: Tensor
    next_rows: Tensor


@dataclass(slots=True)
class ReplayCounters:
    """What became of the steps of a replay memory, since it was made.

    Attributes:
        added: entered it.
        evicted: made room for newer ones.
        drawn: draws, of which one step may have many.
    """

    added: int = 0
    evicted: int = 0
    drawn: int = 0


class ReplayMemory:
    """Keeps the newest steps and draws from them uniformly, with replacement.

    Args:
        spec: what the behavior sees and does.
        size: how many steps and rows there are.
        device: where they are.
        generator: of the draws; on that device, or on the CPU if sequences are drawn.
        memory_size: numbers that the policy remembers; 0 = none, and steps are drawn instead of sequences.
        memory_stride: the most steps of a sequence.

    Attributes:
        spec: what the behavior sees and does.
        branches: number of choices of each discrete branch.
        size: how many steps and rows there may be.
        sequences: those that can be drawn; None without memory.
        steps: in it now.
        masked: whether any step came with action masks.
        counters: see `ReplayCounters`.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        size: ReplaySize,
        device: torch.device,
        generator: torch.Generator,
        *,
        memory_size: int = 0,
        memory_stride: int = 0,
    ) -> None:
        self.spec = spec
        self.branches = tuple(spec.action.discrete_branches)
        self.size = size
        self.masked = False
        self.counters = ReplayCounters()
        columns = replay_columns(spec, memory_size=memory_size, memory_stride=memory_stride)
        self._ring = DeviceRing(columns, size.capacity_rows, device)
        self._staging = staging_for(self._ring, size.block_rows, device)
        self._device = device
        self._generator = generator
        self._slots = max(size.capacity_steps, size.block_rows)
        self.sequences = ReplaySequences(memory_stride, self._slots) if memory_size else None
        self._rows = np.zeros(self._slots, np.int64)  # absolute row of each step, in the slot of its number
        self._places = torch.zeros(self._slots, dtype=torch.int64, device=device)
        self._drawn = torch.zeros(size.capacity_rows, dtype=torch.uint8, device=device)
        self._undrawn = torch.zeros((), dtype=torch.int64, device=device)
        self._first = 0  # number of the oldest step
        self._next = 0  # number of the next one

    @property
    def steps(self) -> int:
        """Steps in it."""
        return self._next - self._first

    @property
    def capacity_steps(self) -> int:
        """The most steps it can hold; none once it was released."""
        return min(self.size.capacity_steps, self._ring.capacity_rows)

    @property
    def storage(self) -> Mapping[str, Tensor]:
        """Its columns, by name: ``[capacity_rows, *shape]``."""
        return self._ring.storage

    @property
    def columns(self) -> tuple[RingColumn, ...]:
        """What a row holds."""
        return self._ring.columns

    @property
    def evicted_undrawn(self) -> Tensor:
        """How many steps were evicted that had never been drawn: a scalar on the device, int64."""
        return self._undrawn

    def add(self, chunk: Chunk, parts: ChunkSegments, chosen: NDArray[np.int64]) -> Tensor:
        """Takes in chosen segments of a chunk; the oldest steps make room.

        Args:
            chunk: the chunk.
            parts: its segments.
            chosen: indices of the segments, ascending; none has more than ``size.block_rows - 1`` steps.

        Returns:
            The places of the new steps, ``[N]`` int64; valid until the next call.
        """
        self.masked = self.masked or ACTION_MASK in chunk.columns
        added = [self._add_run(chunk, parts, run) for run in split(chosen, parts.lengths, self.size.block_rows)]
        self._staging.join()
        return added[0] if len(added) == 1 else torch.cat(added)

    def _add_run(self, chunk: Chunk, parts: ChunkSegments, run: NDArray[np.int64]) -> Tensor:
        lengths = parts.lengths[run]
        steps = int(lengths.sum())
        first = self._make_room(steps, steps + len(run))
        block = self._staging.open(first, steps + len(run))
        fill(block, self.columns, chunk, parts, run)
        _fill_ends(block, chunk, parts, run)
        self._staging.commit()
        starts = first + np.cumsum(lengths + 1) - (lengths + 1)
        places = self._register(spans(starts, lengths), steps + len(run))
        if self.sequences is not None:
            self.sequences.add(starts, lengths)
        self._evict(self.steps - self.size.capacity_steps)
        return places

    def _register(self, rows: NDArray[np.int64], block_rows: int) -> Tensor:
        """Gives the next numbers to steps in absolute rows ``[N]``; returns their places."""
        numbers = np.arange(self._next, self._next + len(rows)) % self._slots
        self._rows[numbers] = rows
        places = to_device(self._ring.places(rows), self._device)
        self._places.index_copy_(0, to_device(numbers, self._device), places)
        begin = self._ring.place(int(rows[0]))
        self._drawn[begin : begin + block_rows] = 0
        self._next += len(rows)
        self.counters.added += len(rows)
        return places

    def _make_room(self, steps: int, rows: int) -> int:
        """Reserves rows for a block; evicts the oldest steps until there are."""
        self._evict(self.steps + steps - self._slots)
        while (first := self._ring.reserve(rows)) is None:
            self._evict(max(1, min(rows, self.steps)))
        return first

    def _evict(self, steps: int) -> None:
        """Lets go of the oldest steps."""
        if steps <= 0:
            return
        numbers = to_device(np.arange(self._first, self._first + steps) % self._slots, self._device)
        drawn = self._drawn.index_select(0, self._places.index_select(0, numbers))
        self._undrawn += steps - drawn.sum(dtype=torch.int64)
        self._first += steps
        self.counters.evicted += steps
        self._free_before(int(self._rows[self._first % self._slots]) if self.steps else None)

    def _free_before(self, row: int | None) -> None:
        """Frees the rows before an absolute row, and what begins there; None frees everything."""
        self._ring.free_before(row)
        if self.sequences is not None:
            self.sequences.keep_from(row)

    def draw(self, count: int) -> Places:
        """Draws steps; to be called when there is at least one. Nothing in it waits for the device."""
        numbers = torch.randint(self.steps, (count,), generator=self._generator, device=self._device)
        if self._first:
            numbers.add_(self._first % self._slots).remainder_(self._slots)
        rows = self._places.index_select(0, numbers)
        self._drawn.index_fill_(0, rows, 1)
        self.counters.drawn += count
        return Places(rows, rows + 1)

    def draw_sequences(self, count: int, parts: int = 1) -> list[DrawnSequences]:
        """Draws whole sequences; to be called when there is at least one. Nothing in it waits for the device.

        Args:
            count: of each part.
            parts: into how many they are packed.

        Raises:
            ValueError: the policy remembers nothing, so that there are none; a fault in the learner's own code.
        """
        if self.sequences is None:
            raise ValueError("a replay memory without memories of the policy has no sequences")
        rows, lengths = self.sequences.draw(count * parts, self._generator)
        # The rows of a segment lie side by side: blocks do not wrap.
        places = self._ring.places(rows).reshape(parts, count)
        found = []
        for part in zip(places, lengths.reshape(parts, count), strict=True):
            drawn = on_device(pack_with_next(*part), self._device)
            self._drawn.index_fill_(0, drawn.step_rows, 1)
            self.counters.drawn += len(drawn.now)
            found.append(drawn)
        return found

    def clear(self) -> None:
        """Forgets every step; what is counted goes on."""
        self._first = self._next
        self._free_before(None)

    def release(self) -> None:
        """Forgets every step and gives the memory back; nothing can be added after that."""
        self.clear()
        self._ring.release()
        self._staging = staging_for(self._ring, 0, self._device)
        self._places, self._drawn = self._places[:0].clone(), self._drawn[:0].clone()

    def live(self) -> tuple[NDArray[np.int64], int, int]:
        """Returns the absolute rows of the steps ``[N]``, oldest first, and first and last + 1 of all rows in use."""
        rows = self._rows[np.arange(self._first, self._next) % self._slots]
        return rows, int(rows[0]) if len(rows) else 0, int(rows[-1]) + 2 if len(rows) else 0

    def places_between(self, first: int, last: int) -> list[slice]:
        """Returns where absolute rows first..last lie, as at most two slices."""
        begin, count = self._ring.place(first), last - first
        head = min(count, self._ring.capacity_rows - begin)
        return [slice(begin, begin + head)] + ([slice(0, count - head)] if count > head else [])

    def restore(
        self,
        rows: NDArray[np.int64],
        used_rows: int,
        *,
        masked: bool,
        sequences: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        """Takes over steps that were read into the first rows of the storage of an empty memory.

        Args:
            rows: ``[N]``, the row of each step, ascending, at least one.
            used_rows: how many rows they take, what was seen last included; no more than there are.
            masked: whether any of them came with action masks.
            sequences: the row of the first step of each, ascending, and how many steps it has; where there are any.

        Raises:
            ValueError: they do not fit.
        """
        fits = 0 < len(rows) <= self._slots and used_rows <= self.size.capacity_rows
        ordered = fits and rows[0] >= 0 and rows[-1] + 1 < used_rows and bool((np.diff(rows) > 0).all())
        if not ordered:
            raise ValueError(f"{len(rows)} steps in {used_rows} rows do not fit, or are not in order")
        self._free_before(None)
        self._ring.restart(used_rows)
        self._first = self._next = 0
        self._register(rows, used_rows - int(rows[0]))
        self.counters.added -= len(rows)
        self.masked = masked
        if self.sequences is not None and sequences is not None:
            self.sequences.append(*sequences)
        self._evict(self.steps - self.size.capacity_steps)


def _fill_ends(block: Block, chunk: Chunk, parts: ChunkSegments, run: NDArray[np.int64]) -> None:
    """Fills in what `fill` does not know: where nothing follows, and what may be done after the last step."""
    finals = np.cumsum(parts.lengths[run] + 1) - 1
    block[TERMINATED][finals - 1] = parts.ends[run] == SegmentEnd.TERMINATED
    if ACTION_MASK in block:
        mask = chunk.columns.get(_FINAL_MASK)
        block[ACTION_MASK][finals] = 1 if mask is None else mask[run]
