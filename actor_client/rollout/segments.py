"""Segments: consecutive steps of one agent, as index ranges into the log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd

from actor_client.envs.base import MaskArray, Observations

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """S closed segments.

    Attributes:
        envs: Environment of each, int64 [S].
        starts: First step, int64 [S].
        lengths: int64 [S], at least 1.
        ends: `SegmentEnd`, uint8 [S].
        episodes: Number of the episode in its environment, int64 [S].
        first_steps: Index of the first row in its episode, int64 [S].
        finals: What was observed after the last row, [S, *shape] each.
        final_masks: uint8 [S, sum of branches], or None.
    """

    envs: Index
    starts: Index
    lengths: Index
    ends: NDArray[np.uint8]
    episodes: Index
    first_steps: Index
    finals: list[NDArray[Any]]
    final_masks: MaskArray | None

    def __len__(self) -> int:
        return len(self.envs)

    def part(self, rows: slice) -> "Segments":
        """Returns some of the segments."""
        return Segments(
            self.envs[rows],
            self.starts[rows],
            self.lengths[rows],
            self.ends[rows],
            self.episodes[rows],
            self.first_steps[rows],
            [values[rows] for values in self.finals],
            None if self.final_masks is None else self.final_masks[rows],
        )


def join(blocks: Sequence[Segments]) -> Segments:
    """Returns all segments of the blocks, at least one block, in order."""
    if len(blocks) == 1:
        return blocks[0]
    masks = [block.final_masks for block in blocks if block.final_masks is not None]
    return Segments(
        np.concatenate([block.envs for block in blocks]),
        np.concatenate([block.starts for block in blocks]),
        np.concatenate([block.lengths for block in blocks]),
        np.concatenate([block.ends for block in blocks]),
        np.concatenate([block.episodes for block in blocks]),
        np.concatenate([block.first_steps for block in blocks]),
        [np.concatenate(values) for values in zip(*(block.finals for block in blocks), strict=True)],
        np.concatenate(masks) if masks else None,
    )


class OpenSegments:
    """Where the open segment and the episode of each of E environments began.

    Steps are counted from 0 over the life of the recorder; `now` is the number of steps so far, so an environment
    whose segment began at `now` has no open rows.

    Args:
        agents: E.

    Attributes:
        starts: First step of each open segment, int64 [E].
        episodes: Number of each running episode, int64 [E].
    """

    __slots__ = ("_episode_starts", "episodes", "starts")

    def __init__(self, agents: int) -> None:
        self.starts = np.zeros(agents, np.int64)
        self.episodes = np.zeros(agents, np.int64)
        self._episode_starts = np.zeros(agents, np.int64)

    def rows(self, now: int) -> int:
        """Returns how many rows are open in all."""
        return now * len(self.starts) - int(self.starts.sum())

    def lengths(self, envs: Index, now: int) -> Index:
        """Returns the steps so far of the running episodes of some environments."""
        return now - self._episode_starts[envs]

    def close(
        self, envs: Index, ends: NDArray[np.uint8] | SegmentEnd, now: int, finals: Observations, masks: MaskArray | None
    ) -> Segments:
        """Ends the open segments of some environments, each of which has open rows; new ones begin.

        Args:
            envs: Which, int64 [m].
            ends: How, uint8 [m] or the same for all. Anything but CUT ends the episode too.
            now: Steps so far.
            finals: What was observed after the last row, [m, *shape] each.
            masks: uint8 [m, sum of branches], or None.
        """
        starts = self.starts[envs]
        end_column = np.full(len(envs), ends, np.uint8) if isinstance(ends, SegmentEnd) else ends
        closed = Segments(
            envs=envs,
            starts=starts,
            lengths=now - starts,
            ends=end_column,
            episodes=self.episodes[envs],
            first_steps=starts - self._episode_starts[envs],
            finals=finals,
            final_masks=masks,
        )
        self.starts[envs] = now
        if not isinstance(ends, SegmentEnd) or ends is not SegmentEnd.CUT:
            self.episodes[envs] += 1
            self._episode_starts[envs] = now
        return closed

    def skip(self, envs: Index, now: int) -> None:
        """Leaves out the step that was just taken, of environments without other open rows; it counts nowhere."""
        self.starts[envs] = now
        self._episode_starts[envs] += 1

    def discard(self, now: int) -> int:
        """Gives up all open rows and returns how many; episodes go on."""
        rows = self.rows(now)
        self.starts[:] = now
        return rows

    def begin_episodes(self, now: int) -> None:
        """Begins a new episode everywhere."""
        self.starts[:] = now
        self._episode_starts[:] = now
        self.episodes += 1


@dataclass(slots=True)
class ClosedSegments:
    """Closed segments that wait for a chunk.

    Attributes:
        blocks: In the order in which they were closed.
        rows: All rows.
        segments: Number of segments.
        since: When the oldest was closed, in monotonic seconds.
        first_step: First step that any of them needs.
    """

    blocks: list[Segments] = field(default_factory=list)
    rows: int = 0
    segments: int = 0
    since: float = 0.0
    first_step: int = 0

    def add(self, block: Segments, now_seconds: float) -> None:
        """Adds segments that were just closed."""
        first_step = int(block.starts.min())
        if not self.blocks:
            self.since = now_seconds
            self.first_step = first_step
        self.first_step = min(self.first_step, first_step)
        self.blocks.append(block)
        self.rows += int(block.lengths.sum())
        self.segments += len(block)

    def clear(self) -> None:
        """Forgets all."""
        self.blocks = []
        self.rows = 0
        self.segments = 0


def row_indices(segments: Segments) -> tuple[Index, Index]:
    """Returns step and environment of each row, int64 [N] each, segment after segment."""
    lengths = segments.lengths
    ends = np.cumsum(lengths)
    steps = np.repeat(segments.starts - (ends - lengths), lengths) + np.arange(ends[-1])
    return steps, np.repeat(segments.envs, lengths)


def split(
    lengths: Iterable[int], *, row_bytes: int, segment_bytes: int, budget_bytes: int, max_rows: int
) -> list[slice]:
    """Returns consecutive slices of segments, each within both limits if its first segment is.

    Args:
        lengths: Rows of each segment.
        row_bytes: Bytes of a row.
        segment_bytes: Bytes of a segment beside its rows.
        budget_bytes: Most bytes of a slice.
        max_rows: Most rows of a slice; 0 = no limit.
    """
    slices, begin, rows, used = [], 0, 0, 0
    at = 0
    for at, length in enumerate(lengths, start=1):
        size = segment_bytes + length * row_bytes
        if rows and (used + size > budget_bytes or (max_rows and rows + length > max_rows)):
            slices.append(slice(begin, at - 1))
            begin, rows, used = at - 1, 0, 0
        rows += length
        used += size
    if at > begin:
        slices.append(slice(begin, at))
    return slices
