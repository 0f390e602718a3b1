"""Closed segments of agents, as lists of rows in the pool."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import GroupEnd, SegmentEnd

Index = NDArray[np.int64]
Seen = tuple[list[NDArray[Any]], NDArray[np.uint8] | None]


class ClosedSegment(NamedTuple):
    """One segment (a tuple, because early in training one is made at each step).

    Attributes:
        rows: Its rows in the pool, at least one.
        final: The row of the pool that holds what was seen after the last of them.
        env: Number of the environment.
        agent: Number of the agent, unique in the session's environments.
        episode: Number of the episode, unique in the session.
        first_step: Index of the first row in its episode.
        end: How it ended.
        group: Number of the group; 0 = none.
        group_episode: Number of the group's episode; 0 = none.
        group_end: How the group stood at the end.
        oldest_version: That chose the first action.
    """

    rows: list[int]
    final: int
    env: int
    agent: int
    episode: int
    first_step: int
    end: SegmentEnd
    group: int
    group_episode: int
    group_end: GroupEnd
    oldest_version: int


@dataclass(frozen=True, slots=True)
class AgentSegments:
    """S closed segments, for `ChunkBuilder`.

    Attributes:
        closed: The segments.
        lengths: Rows of each, int64 [S].
        bundles: How many segments in a row are group mates that should share a chunk, adding up to S.
        finals: What was seen after the last row of each, [S, *shape], one array an observation.
        final_masks: Allowed choices then, uint8 [S, sum of branches]; None = all.
    """

    closed: Sequence[ClosedSegment]
    lengths: Index
    bundles: Sequence[int] | None
    finals: list[NDArray[Any]]
    final_masks: NDArray[np.uint8] | None

    def __len__(self) -> int:
        return len(self.closed)

    @property
    def row_numbers(self) -> Index:
        """Rows in the pool, segment after segment, int64 [N]."""
        rows = chain.from_iterable(segment.rows for segment in self.closed)
        return np.fromiter(rows, np.int64, int(self.lengths.sum()))

    @property
    def grouped(self) -> bool:
        """Whether any of the agents is in a group."""
        return any(segment.group for segment in self.closed)

    def part(self, rows: slice) -> "AgentSegments":
        """Returns some of the segments, whose bundles do not matter any more."""
        return AgentSegments(
            self.closed[rows],
            self.lengths[rows],
            None,
            [values[rows] for values in self.finals],
            None if self.final_masks is None else self.final_masks[rows],
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the SEGMENT columns as trajectory.proto has them."""
        closed = self.closed
        columns: dict[str, NDArray[Any]] = {
            "length": self.lengths.astype(np.uint32),
            "end": np.array([segment.end for segment in closed], np.uint8),
            "env": np.array([segment.env for segment in closed], np.uint32),
            "agent": np.array([segment.agent for segment in closed], np.uint64),
            "episode": np.array([segment.episode for segment in closed], np.uint64),
            "first_step": np.array([segment.first_step for segment in closed], np.uint32),
        }
        if self.grouped:
            columns["group"] = np.array([segment.group for segment in closed], np.uint64)
            columns["group_episode"] = np.array([segment.group_episode for segment in closed], np.uint64)
            columns["group_end"] = np.array([segment.group_end for segment in closed], np.uint8)
        return columns


def join(bundles: Sequence[Sequence[ClosedSegment]], see: Callable[[Index], Seen]) -> AgentSegments:
    """Returns all segments of the bundles, in order.

    Args:
        bundles: Segments that should share a chunk.
        see: Returns what was seen at rows of the pool, and the allowed choices.
    """
    closed = list(chain.from_iterable(bundles))
    finals, final_masks = see(np.array([segment.final for segment in closed], np.int64))
    return AgentSegments(
        closed=closed,
        lengths=np.array([len(segment.rows) for segment in closed], np.int64),
        bundles=[len(bundle) for bundle in bundles],
        finals=finals,
        final_masks=final_masks,
    )
