"""Converts the flat columns of a chunk to blocks of ring rows: whole segments, each followed by its final row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rollcast.trajectories import Chunk

from learner.training.buffers.columns import ACTION_MASK, REWARD, VERSION, RingColumn
from learner.training.buffers.groups import GroupPlace, bundles_of, is_too_large, places_of, team_rewards
from learner.training.buffers.staging import Block


@dataclass(frozen=True, slots=True)
class ChunkSegments:
    """The S segments of a chunk as plain numbers.

    Attributes:
        lengths: ``[S]``, number of steps.
        ends: ``[S]`` values of `SegmentEnd`.
        starts: ``[S]``, row of each first step in the chunk.
        versions: ``[N]``, the policy version of each row.
        oldest: ``[S]``, the oldest version of each segment's rows.
        begins: ``[S]``, whether an episode begins with the segment.
        bundles: ``[S]``, index of the first segment of each segment's bundle; None if groups do not matter.
        groups: Position of each segment in its group; empty if groups do not matter.
        rewards: ``[N]``, rewards of the whole team at each row; empty if groups do not matter.
    """

    lengths: NDArray[np.int64]
    ends: NDArray[np.uint8]
    starts: NDArray[np.int64]
    versions: NDArray[np.int64]
    oldest: NDArray[np.int64]
    begins: NDArray[np.bool_]
    bundles: NDArray[np.int64] | None = None
    groups: Sequence[GroupPlace] = ()
    rewards: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


def segments_of(chunk: Chunk, *, grouped: bool = False) -> ChunkSegments:
    """Reads the segments of a chunk that has at least one.

    Args:
        chunk: The chunk.
        grouped: Whether groups matter to the trainer.
    """
    lengths = chunk.columns["length"].astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    offsets = chunk.columns.get("version_offset")
    versions = np.full(chunk.rows, chunk.base_version, np.int64)
    if offsets is not None:
        versions += offsets
    oldest: NDArray[np.int64] = np.minimum.reduceat(versions, starts)
    begins = chunk.columns["first_step"] == 0
    ends = chunk.columns["end"]
    if not grouped:
        return ChunkSegments(lengths, ends, starts, versions, oldest, begins)
    bundles = bundles_of(chunk)
    groups = places_of(chunk, bundles, starts, lengths)
    rewards = _team_rewards(chunk, starts, lengths, groups)
    return ChunkSegments(lengths, ends, starts, versions, oldest, begins, bundles, groups, rewards)


def spans(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenates the ranges ``[start, start + length)``: ``[sum(lengths)]``."""
    before = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.arange(lengths.sum(), dtype=np.int64) + np.repeat(starts - before, lengths)
    return places


def split(chosen: NDArray[np.int64], sizes: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """Splits chosen segments or sequences into groups of a limited size in total, or of one larger item.

    Args:
        chosen: Indices of the items.
        sizes: ``[S]``, size of each of all items.
        most: Largest size of a group.
    """
    ends = np.cumsum(sizes[chosen])
    begin, done = 0, 0
    while begin < len(chosen):
        end = max(begin + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield chosen[begin:end]
        begin, done = end, int(ends[end - 1])


def split_bundles(
    chosen: NDArray[np.int64], bundles: NDArray[np.int64], lengths: NDArray[np.int64], block_rows: int
) -> Iterator[NDArray[np.int64]]:
    """Splits chosen segments into runs of whole bundles of at most ``block_rows`` ring rows, or of one larger bundle.

    Args:
        chosen: Indices of segments, bundle after bundle.
        bundles: ``[S]``, bundle of each segment.
        lengths: ``[S]`` steps of all segments.
        block_rows: Rows of the largest block.
    """
    run: list[NDArray[np.int64]] = []
    taken = 0
    for members in np.split(chosen, np.flatnonzero(np.diff(bundles[chosen])) + 1):
        rows = int(lengths[members].sum()) + len(members)
        if run and taken + rows > block_rows:
            yield np.concatenate(run)
            run, taken = [], 0
        run.append(members)
        taken += rows
    if run:
        yield np.concatenate(run)


def fill(
    block: Block,
    columns: tuple[RingColumn, ...],
    chunk: Chunk,
    parts: ChunkSegments,
    chosen: NDArray[np.int64],
    *,
    own: NDArray[np.bool_] | None = None,
) -> None:
    """Fills a block with the chosen segments of a chunk.

    Args:
        block: ``[rows, ...]`` arrays, rows = steps of the chosen segments plus one each.
        columns: The ring's columns.
        chunk: Source of the data.
        parts: Its segments.
        chosen: Indices of the segments.
        own: ``[S]``, whether to fill the rows of each segment, which have a place in either case; None fills all.
    """
    lengths = parts.lengths[chosen]
    first = np.cumsum(lengths + 1) - (lengths + 1)
    if own is not None:
        kept = own[chosen]
        chosen, lengths, first = chosen[kept], lengths[kept], first[kept]
    steps = spans(parts.starts[chosen], lengths)
    step_rows = spans(first, lengths)
    final_rows = first + lengths
    for column in columns:
        target = block[column.name]
        target[final_rows] = 0 if column.final is None else chunk.columns[column.final][chosen]
        if column.stride > 1:
            target[step_rows] = 0
            sources, places = _strided(parts.lengths, chosen, first, column.stride)
            target[places] = chunk.columns[column.name][sources]
        elif column.name == VERSION:
            target[step_rows] = parts.versions[steps]
        elif column.name == REWARD:
            target[step_rows] = (parts.rewards if column.of_team and len(parts.rewards) else _rewards(chunk))[steps]
        elif column.name in chunk.columns:
            target[step_rows] = chunk.columns[column.name][steps]
        else:
            target[step_rows] = 1 if column.name == ACTION_MASK else 0


def _strided(
    lengths: NDArray[np.int64], chosen: NDArray[np.int64], first: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the source and target rows of a column that has a value for every stride-th row.

    Args:
        lengths: ``[S]`` steps of all segments.
        chosen: Indices of segments.
        first: Target row of the first step of each chosen one.
        stride: Rows from one value to the next.
    """
    counts = -(-lengths // stride)
    sources = spans((np.cumsum(counts) - counts)[chosen], counts[chosen])
    places = np.repeat(first, counts[chosen]) + stride * spans(np.zeros_like(chosen), counts[chosen])
    return sources, places


def _rewards(chunk: Chunk) -> NDArray[np.float32]:
    own: NDArray[np.float32] = chunk.columns["reward"]
    return _with_group_rewards(own, chunk)


def _team_rewards(
    chunk: Chunk, starts: NDArray[np.int64], lengths: NDArray[np.int64], groups: Sequence[GroupPlace]
) -> NDArray[np.float32]:
    """Returns the rewards of each row with those of its agent's mates, ``[N]``."""
    own: NDArray[np.float32] = chunk.columns["reward"]
    bundles: dict[int, list[int]] = {}
    for index, place in enumerate(groups):
        bundles.setdefault(place.bundle, []).append(index)
    team = own.astype(np.float64)
    for members in bundles.values():
        places = [groups[index] for index in members]
        if len(places) > 1 and not is_too_large(places):
            rows = [slice(starts[index], starts[index] + lengths[index]) for index in members]
            for span, sums in zip(rows, team_rewards([own[span] for span in rows], places), strict=True):
                team[span] = sums
    return _with_group_rewards(team, chunk)


def _with_group_rewards(own: NDArray[np.float32] | NDArray[np.float64], chunk: Chunk) -> NDArray[np.float32]:
    group = chunk.columns.get("group_reward")
    if group is None:
        return own.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):  # beyond float32 is infinite; the update then reports that it was not finite
        total: NDArray[np.float32] = (own + group).astype(np.float32, copy=False)
    return total
