"""Replay memory: the newest steps on the training device, drawn at random.

Rows are those of the ring: a segment of n steps takes n + 1, the last of which holds the observation after it. The
observation after a step is therefore always in the next row, and no observation is stored twice, except where a segment
was cut. Steps are numbered in order of arrival; a table maps each number to a row.
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

from learner.training.buffers.columns import ACTION_MASK, MEMORY, REWARD, TERMINATED, RingColumn, step_columns
from learner.training.buffers.layout import ChunkSegments, fill, spans, split
from learner.training.buffers.replay_sequences import DrawnSequences, ReplaySequences, RowTable, on_device
from learner.training.buffers.ring import BLOCK_BYTES, MAX_BLOCK_ROWS, DeviceRing
from learner.training.buffers.sequences import pack_with_next
from learner.training.buffers.staging import Block, staging_for
from learner.training.buffers.transfer import to_device

_FINAL_MASK = "final_action_mask"
_SHORT_SEGMENT_STEPS: Final = 4
"""Mean segment length for which there is room; with shorter segments a memory holds fewer steps."""

_TABLE_BYTES: Final = 9
"""Bytes per row of the tables: the row of its step, and whether it was drawn."""


@dataclass(frozen=True, slots=True)
class ReplaySize:
    """Sizes of a replay memory.

    Attributes:
        capacity_steps: Most steps.
        capacity_rows: Rows, including those for observations after segments.
        block_rows: Rows of the largest block that is staged at once.
    """

    capacity_steps: int
    capacity_rows: int
    block_rows: int


def replay_columns(spec: BehaviorSpec, *, memory_size: int = 0, memory_stride: int = 0) -> tuple[RingColumn, ...]:
    """Returns the columns of a replay memory, without columns that only on-policy trainers need.

    ``terminated`` is 1 where nothing follows a step. Final rows also have a mask, for the choices allowed next.
    ``memory`` is the policy's memory when it acted, at the first row of each sequence.

    Args:
        spec: Observations and actions of the behavior.
        memory_size: Memory values per agent; 0 for none.
        memory_stride: Rows between two records of memory.
    """
    columns = step_columns(spec, torch.int32)
    columns.append(RingColumn(REWARD, torch.float32))
    columns.append(RingColumn(TERMINATED, torch.uint8))
    if memory_size:
        columns.append(RingColumn(MEMORY, torch.float32, (memory_size,), stride=memory_stride))
    return tuple(columns)


def replay_row_bytes(spec: BehaviorSpec, memory_size: int = 0) -> int:
    """Returns the bytes of one row, including its tables.

    Args:
        spec: Observations and actions of the behavior.
        memory_size: Memory values per agent; 0 for none.
    """
    return sum(column.row_bytes for column in replay_columns(spec, memory_size=memory_size)) + _TABLE_BYTES


def replay_size(row_bytes: int, *, buffer_size: int, time_horizon: int) -> ReplaySize:
    """Chooses the size of a replay memory.

    Args:
        row_bytes: Bytes of a row.
        buffer_size: Most steps.
        time_horizon: The longest segment, in steps.
    """
    fitting = min(MAX_BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes), buffer_size)
    block_rows = max(time_horizon + 1, fitting)
    finals = -(-buffer_size // min(time_horizon, _SHORT_SEGMENT_STEPS))
    # Blocks do not wrap: up to one block is skipped at the end, and one must fit after the held rows.
    return ReplaySize(buffer_size, buffer_size + finals + 2 * block_rows, block_rows)


class Places(NamedTuple):
    """The locations of B drawn steps in `ReplayMemory.storage`.

    Attributes:
        rows: ``[B]`` int64, rows of the steps.
        next_rows: ``[B]`` int64, rows of the observations after them.
    """

    rows: Tensor
    next_rows: Tensor


@dataclass(slots=True)
class ReplayCounters:
    """Counts of a replay memory since it was created.

    Attributes:
        added: Steps that entered it.
        evicted: Steps removed to make room for newer ones.
        drawn: Number of draws; a step can be drawn repeatedly.
    """

    added: int = 0
    evicted: int = 0
    drawn: int = 0


class ReplayMemory:
    """Keeps the newest steps and draws from them uniformly, with replacement.

    Args:
        spec: Observations and actions of the behavior.
        size: Number of steps and rows.
        device: Device of the memory.
        generator: Generator of the draws; on the memory's device, or on the CPU if sequences are drawn.
        memory_size: Values of the policy's memory; 0 for none, in which case steps are drawn instead of sequences.
        memory_stride: Steps between two sequences, and the most steps of one without burn-in.
        burn_in: Steps before a sequence that warm its memory.

    Attributes:
        spec: Observations and actions of the behavior.
        branches: Number of choices of each discrete branch.
        size: Number of steps and rows.
        sequences: Sequences that can be drawn; None without memory.
        starts: Rows of the first steps of episodes.
        steps: Current number of steps.
        masked: Whether any step has action masks.
        counters: See `ReplayCounters`.
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
        burn_in: int = 0,
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
        self.sequences = ReplaySequences(memory_stride, self._slots, burn_in) if memory_size else None
        self.starts = RowTable(self._slots)
        self._rows = np.zeros(self._slots, np.int64)  # absolute row of each step, in the slot of its number
        self._places = torch.zeros(self._slots, dtype=torch.int64, device=device)
        self._drawn = torch.zeros(size.capacity_rows, dtype=torch.uint8, device=device)
        self._undrawn = torch.zeros((), dtype=torch.int64, device=device)
        self._first = 0  # number of the oldest step
        self._next = 0  # number of the next step

    @property
    def steps(self) -> int:
        """Current number of steps."""
        return self._next - self._first

    @property
    def capacity_steps(self) -> int:
        """Most steps it can hold; 0 after its release."""
        return min(self.size.capacity_steps, self._ring.capacity_rows)

    @property
    def storage(self) -> Mapping[str, Tensor]:
        """Its columns, by name: ``[capacity_rows, *shape]``."""
        return self._ring.storage

    @property
    def columns(self) -> tuple[RingColumn, ...]:
        """Columns of a row."""
        return self._ring.columns

    @property
    def evicted_undrawn(self) -> Tensor:
        """Number of evicted steps that were never drawn: a scalar on the device, int64."""
        return self._undrawn

    def add(self, chunk: Chunk, parts: ChunkSegments, chosen: NDArray[np.int64]) -> Tensor:
        """Adds chosen segments of a chunk; the oldest steps make room.

        Args:
            chunk: The chunk.
            parts: Its segments.
            chosen: Indices of the segments, ascending; none has more than ``size.block_rows - 1`` steps.

        Returns:
            Places of the new steps, ``[N]`` int64; valid until the next call.
        """
        self.masked = self.masked or ACTION_MASK in chunk.columns
        added = [self._add_run(chunk, parts, run) for run in split(chosen, parts.lengths + 1, self.size.block_rows)]
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
        self.starts.append(starts[parts.begins[run]])
        if self.sequences is not None:
            self.sequences.add(starts, lengths)
        self._evict(self.steps - self.size.capacity_steps)
        return places

    def _register(self, rows: NDArray[np.int64], block_rows: int) -> Tensor:
        """Assigns the next numbers to steps in absolute rows ``[N]``; returns their places."""
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
        """Reserves rows for a block; evicts the oldest steps until it fits."""
        self._evict(self.steps + steps - self._slots)
        while (first := self._ring.reserve(rows)) is None:
            self._evict(max(1, min(rows, self.steps)))
        return first

    def _evict(self, steps: int) -> None:
        """Removes the oldest steps."""
        if steps <= 0:
            return
        numbers = to_device(np.arange(self._first, self._first + steps) % self._slots, self._device)
        drawn = self._drawn.index_select(0, self._places.index_select(0, numbers))
        self._undrawn += steps - drawn.sum(dtype=torch.int64)
        self._first += steps
        self.counters.evicted += steps
        self._free_before(int(self._rows[self._first % self._slots]) if self.steps else None)

    def _free_before(self, row: int | None) -> None:
        """Frees the rows before an absolute row, and sequences and episodes that begin there; None frees everything."""
        self._ring.free_before(row)
        self.starts.keep_from(row)
        if self.sequences is not None:
            self.sequences.keep_from(row)

    def places(self) -> Places:
        """Returns the places of all steps, oldest first."""
        numbers = to_device(np.arange(self._first, self._next) % self._slots, self._device)
        rows = self._places.index_select(0, numbers)
        return Places(rows, rows + 1)

    def draw(self, count: int) -> Places:
        """Draws steps without waiting for the device; requires at least one step."""
        numbers = torch.randint(self.steps, (count,), generator=self._generator, device=self._device)
        if self._first:
            numbers.add_(self._first % self._slots).remainder_(self._slots)
        rows = self._places.index_select(0, numbers)
        self._drawn.index_fill_(0, rows, 1)
        self.counters.drawn += count
        return Places(rows, rows + 1)

    def draw_starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draws places ``[count]`` int64 of first steps of episodes, without waiting for the device.

        If the memory holds no first step, as with episodes longer than it, any steps are drawn; requires at least one.

        Args:
            count: Number of places.
            generator: Generator on the CPU.
        """
        if len(self.starts):
            (rows,) = self.starts.draw(count, generator)
        else:
            numbers = self._first + torch.randint(self.steps, (count,), generator=generator).numpy()
            rows = self._rows[numbers % self._slots]
        return to_device(self._ring.places(rows), self._device)

    def draw_sequences(self, count: int, parts: int = 1) -> list[DrawnSequences]:
        """Draws whole sequences without waiting for the device; requires at least one.

        Args:
            count: Sequences of each part.
            parts: Number of parts into which they are packed.

        Raises:
            ValueError: The policy has no memory, so there are no sequences; a fault in the learner's code.
        """
        if self.sequences is None:
            raise ValueError("the replay memory of a policy without memory has no sequences")
        rows, lengths, warms = self.sequences.draw(count * parts, self._generator)
        # The rows of a segment are contiguous: blocks do not wrap.
        places = self._ring.places(rows)
        found = []
        for part in zip(*(each.reshape(parts, count) for each in (places + warms, lengths, warms)), strict=True):
            packed = pack_with_next(*part[:2])
            drawn = on_device(packed, self._device, part[2][packed.order])
            self._drawn.index_fill_(0, drawn.step_rows, 1)
            self.counters.drawn += len(drawn.now)
            found.append(drawn)
        return found

    def clear(self) -> None:
        """Removes every step; the counters continue."""
        self._first = self._next
        self._free_before(None)

    def release(self) -> None:
        """Removes every step and frees the memory; nothing can be added after that."""
        self.clear()
        self._ring.release()
        self._staging = staging_for(self._ring, 0, self._device)
        self._places, self._drawn = self._places[:0].clone(), self._drawn[:0].clone()

    def live(self) -> tuple[NDArray[np.int64], int, int]:
        """Returns the absolute rows of the steps ``[N]``, oldest first, and the first and last + 1 of all used rows."""
        rows = self._rows[np.arange(self._first, self._next) % self._slots]
        return rows, int(rows[0]) if len(rows) else 0, int(rows[-1]) + 2 if len(rows) else 0

    def places_between(self, first: int, last: int) -> list[slice]:
        """Returns the places of absolute rows first..last as at most two slices."""
        begin, count = self._ring.place(first), last - first
        head = min(count, self._ring.capacity_rows - begin)
        return [slice(begin, begin + head)] + ([slice(0, count - head)] if count > head else [])

    def restore(
        self,
        rows: NDArray[np.int64],
        used_rows: int,
        *,
        masked: bool,
        starts: NDArray[np.int64],
        sequences: tuple[NDArray[np.int64], ...] | None = None,
    ) -> None:
        """Restores steps that were read into the first rows of the storage of an empty memory.

        Args:
            rows: ``[N]``, the row of each step, ascending, at least one.
            used_rows: Number of rows they take, including the observation after the last step; at most those available.
            masked: Whether any step has action masks.
            starts: Rows of the first steps of episodes, ascending.
            sequences: The numbers of `ReplaySequences`; None without memory.

        Raises:
            ValueError: The steps do not fit.
        """
        fits = 0 < len(rows) <= self._slots and used_rows <= self.size.capacity_rows
        ordered = fits and rows[0] >= 0 and rows[-1] + 1 < used_rows and bool((np.diff(rows) > 0).all())
        if not ordered:
            raise ValueError(f"{len(rows)} steps in {used_rows} rows do not fit the replay memory, or are not in order")
        self._free_before(None)
        self._ring.restart(used_rows)
        self._first = self._next = 0
        self._register(rows, used_rows - int(rows[0]))
        self.counters.added -= len(rows)
        self.masked = masked
        self.starts.append(starts)
        if self.sequences is not None and sequences is not None:
            self.sequences.append(*sequences)
        self._evict(self.steps - self.size.capacity_steps)


def _fill_ends(block: Block, chunk: Chunk, parts: ChunkSegments, run: NDArray[np.int64]) -> None:
    """Fills the columns that `fill` does not know: terminal steps, and the choices allowed after the last step."""
    finals = np.cumsum(parts.lengths[run] + 1) - 1
    block[TERMINATED][finals - 1] = parts.ends[run] == SegmentEnd.TERMINATED
    if ACTION_MASK in block:
        mask = chunk.columns.get(_FINAL_MASK)
        block[ACTION_MASK][finals] = 1 if mask is None else mask[run]
