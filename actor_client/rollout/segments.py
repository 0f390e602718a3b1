"""Segments: consecutive steps of one agent, as index ranges into the log."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actor_client.envs.base import MaskArray
from actor_client.rollout.running import EPISODE, EPISODE_START, START, Block

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

    @property
    def bundles(self) -> None:
        """Environments know nothing of each other: any two segments may part."""
        return

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

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the SEGMENT columns as trajectory.proto has them; an environment has one agent, of its number."""
        return {
            "length": self.lengths.astype(np.uint32),
            "end": self.ends,
            "env": self.envs.astype(np.uint32),
            "agent": self.envs.astype(np.uint64),
            "episode": self.episodes.astype(np.uint64),
            "first_step": self.first_steps.astype(np.uint32),
        }

    def row_indices(self) -> tuple[Index, Index]:
        """Returns step and environment of each row, int64 [N] each, segment after segment."""
        ends = np.cumsum(self.lengths)
        steps = np.repeat(self.starts - (ends - self.lengths), self.lengths) + np.arange(ends[-1])
        return steps, np.repeat(self.envs, self.lengths)


def join_segments(blocks: Sequence[Block]) -> Segments:
    """Returns all segments of the blocks, at least one, in order."""
    state = np.concatenate([block.state for block in blocks])
    nows = np.repeat([block.now for block in blocks], [len(block.envs) for block in blocks])
    masks = [block.final_masks for block in blocks if block.final_masks is not None]
    return Segments(
        envs=np.concatenate([block.envs for block in blocks]),
        starts=state[:, START],
        lengths=nows - state[:, START],
        ends=np.concatenate([block.ends for block in blocks]),
        episodes=state[:, EPISODE],
        first_steps=state[:, START] - state[:, EPISODE_START],
        finals=[np.concatenate(values) for values in zip(*(block.finals for block in blocks), strict=True)],
        final_masks=np.concatenate(masks) if masks else None,
    )


def split(
    lengths: Sequence[int],
    *,
    row_bytes: int,
    segment_bytes: int,
    budget_bytes: int,
    max_rows: int,
    bundles: Sequence[int] | None = None,
) -> list[slice]:
    """Returns consecutive slices of segments, each within both limits if its first segment is.

    A bundle is parted only if it alone passes a limit.

    Args:
        lengths: Rows of each segment.
        row_bytes: Bytes of a row.
        segment_bytes: Bytes of a segment beside its rows.
        budget_bytes: Most bytes of a slice.
        max_rows: Most rows of a slice; 0 = no limit.
        bundles: Sizes of consecutive runs of segments that should stay together; None = each is alone.
    """

    def fits(rows: int, segments: int) -> bool:
        within = rows * row_bytes + segments * segment_bytes <= budget_bytes
        return within and (not max_rows or rows <= max_rows)

    slices: list[slice] = []
    begin, at, rows = 0, 0, 0
    for size in bundles or [1] * len(lengths):
        whole = sum(lengths[at : at + size])
        parts = [(size, whole)] if fits(whole, size) else [(1, length) for length in lengths[at : at + size]]
        for segments, length in parts:
            if rows and not fits(rows + length, at + segments - begin):
                slices.append(slice(begin, at))
                begin, rows = at, 0
            at += segments
            rows += length
    if at > begin:
        slices.append(slice(begin, at))
    return slices
