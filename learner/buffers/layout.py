"""From a chunk's flat columns to blocks of ring rows: whole segments, each followed by its final row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rollcast.trajectories import Chunk

from learner.buffers.columns import ACTION_MASK, REWARD, VERSION, RingColumn
from learner.buffers.staging import Block


@dataclass(frozen=True, slots=True)
class ChunkSegments:
    """The segments of a chunk in plain numbers, S of them.

    Attributes:
        lengths: ``[S]`` steps.
        ends: ``[S]`` values of `SegmentEnd`.
        starts: ``[S]``, the chunk's row of each first step.
        versions: ``[N]``, the policy version of each row.
        oldest: ``[S]``, the oldest version of each segment's rows.
    """

    lengths: NDArray[np.int64]
    ends: NDArray[np.uint8]
    starts: NDArray[np.int64]
    versions: NDArray[np.int64]
    oldest: NDArray[np.int64]


def segments_of(chunk: Chunk) -> ChunkSegments:
    """Reads the segments of a chunk that has at least one."""
    lengths = chunk.columns["length"].astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    offsets = chunk.columns.get("version_offset")
    versions = np.full(chunk.rows, chunk.base_version, np.int64)
    if offsets is not None:
        versions += offsets
    oldest: NDArray[np.int64] = np.minimum.reduceat(versions, starts)
    return ChunkSegments(lengths, chunk.columns["end"], starts, versions, oldest)


def spans(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenates the ranges ``[start, start + length)``: ``[sum(lengths)]``."""
    before = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.arange(lengths.sum(), dtype=np.int64) + np.repeat(starts - before, lengths)
    return places


def split(chosen: NDArray[np.int64], lengths: NDArray[np.int64], block_rows: int) -> Iterator[NDArray[np.int64]]:
    """Splits chosen segments into runs that take at most ``block_rows`` ring rows each.

    Args:
        chosen: indices of segments, ascending.
        lengths: ``[S]`` steps of all segments; each chosen one fits a block.
        block_rows: the largest block.
    """
    rows = np.cumsum(lengths[chosen] + 1)
    begin, done = 0, 0
    while begin < len(chosen):
        end = int(np.searchsorted(rows, done + block_rows, side="right"))
        yield chosen[begin:end]
        begin, done = end, int(rows[end - 1])


def fill(
    block: Block, columns: tuple[RingColumn, ...], chunk: Chunk, parts: ChunkSegments, chosen: NDArray[np.int64]
) -> None:
    """Fills a block with the chosen segments of a chunk.

    Args:
        block: ``[rows, ...]`` arrays, rows = steps of the chosen segments plus one each.
        columns: the ring's columns.
        chunk: where the data comes from.
        parts: its segments.
        chosen: indices of the segments.
    """
    lengths = parts.lengths[chosen]
    steps = spans(parts.starts[chosen], lengths)
    first = np.cumsum(lengths + 1) - (lengths + 1)
    step_rows = spans(first, lengths)
    final_rows = first + lengths
    for column in columns:
        target = block[column.name]
        target[final_rows] = 0 if column.final is None else chunk.columns[column.final][chosen]
        if column.stride > 1:
            target[step_rows] = 0
            sources, places = _strided(parts.lengths, chosen, column.stride)
            target[places] = chunk.columns[column.name][sources]
        elif column.name == VERSION:
            target[step_rows] = parts.versions[steps]
        elif column.name == REWARD:
            target[step_rows] = _rewards(chunk)[steps]
        elif column.name in chunk.columns:
            target[step_rows] = chunk.columns[column.name][steps]
        else:
            target[step_rows] = 1 if column.name == ACTION_MASK else 0


def _strided(
    lengths: NDArray[np.int64], chosen: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns which rows of a chunk's column with a value for every stride-th row go where in a block."""
    counts = -(-lengths // stride)
    sources = spans((np.cumsum(counts) - counts)[chosen], counts[chosen])
    rows = lengths[chosen] + 1
    first = np.cumsum(rows) - rows
    places = np.repeat(first, counts[chosen]) + stride * spans(np.zeros_like(chosen), counts[chosen])
    return sources, places


def _rewards(chunk: Chunk) -> NDArray[np.float32]:
    own: NDArray[np.float32] = chunk.columns["reward"]
    group = chunk.columns.get("group_reward")
    if group is None:
        return own
    with np.errstate(over="ignore"):  # beyond float32 is infinite; the update then says that it was not finite
        total: NDArray[np.float32] = own + group
    return total
