"""A pool of rows of agents that step independently, and the closed segments made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import GroupEnd, SegmentEnd
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import NO_MEMORY, Actions, MemoryForm
from actor_client.rollout.chunks import Rows, remembered_rows

Index = NDArray[np.int64]
Seen = tuple[list[NDArray[Any]], NDArray[np.uint8] | None]
FIRST_ROWS: Final = 256
"""Rows of a new pool, which grows by doubling."""


class ClosedSegment(NamedTuple):
    """One segment (a tuple, because early in training one is made at each step).

    Attributes:
        rows: Its rows in the pool, at least one.
        final: The pool row with the observation after its last row.
        env: Number of the environment.
        agent: Number of the agent, unique in the session's environments.
        episode: Number of the episode, unique in the session.
        first_step: Index of the first row in its episode.
        end: How the segment ended.
        group: Number of the group; 0 = none.
        group_episode: Number of the group's episode; 0 = none.
        group_end: State of the group at that end.
        oldest_version: Version that chose the first action.
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
        bundles: Sizes of consecutive runs of group mates that should share a chunk, summing to S.
        finals: Observations after the last row of each, [S, *shape], one array per observation.
        final_masks: Allowed choices after the last row, uint8 [S, sum of branches]; None = all.
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
        """True if any of the agents is in a group."""
        return any(segment.group for segment in self.closed)

    def part(self, rows: slice) -> "AgentSegments":
        """Returns some of the segments; their bundles are not kept."""
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
        see: Returns the observations and allowed choices at rows of the pool.
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


class RowPool:
    """All STEP columns of rows that are open, closed but not sent, or the final observation of a closed segment.

    Args:
        spec: The behavior's spec.

    Attributes:
        row_bytes: Most bytes of one row of all STEP columns, `version_offset` included.
        memory_form: Form of an agent's memory.
    """

    def __init__(self, spec: BehaviorSpec) -> None:
        action = spec.action

        def column(trailing: tuple[int, ...], dtype: Any) -> NDArray[Any]:
            return np.zeros((FIRST_ROWS, *trailing), dtype)

        self._names = [part.name for part in spec.observations]
        self._has_masks = bool(action.discrete_branches)
        self._columns: dict[str, NDArray[Any]] = {
            f"obs/{part.name}": column(part.shape, part.dtype) for part in spec.observations
        }
        if action.continuous_size:
            self._columns["continuous_action"] = column((action.continuous_size,), np.float32)
        if action.discrete_branches:
            self._columns["discrete_action"] = column((len(action.discrete_branches),), np.int32)
            self._columns["action_mask"] = column((action.mask_size,), np.uint8)
        self._columns["log_prob"] = column((action.factors,), np.float32)
        self._columns["reward"] = column((), np.float32)
        self._columns["group_reward"] = column((), np.float32)
        self._columns["group_step"] = column((), np.int32)
        self.memory_form = NO_MEMORY
        self._memory: NDArray[np.float32] | None = None
        self._versions = column((), np.uint64)
        self._taken_at = column((), np.float64)
        self._free = np.arange(FIRST_ROWS, dtype=np.int64)
        self._left = FIRST_ROWS
        version_bytes = np.dtype(np.uint32).itemsize
        self.row_bytes = version_bytes + sum(values.nbytes // FIRST_ROWS for values in self._columns.values())
        self._bind()

    def _bind(self) -> None:
        """Makes the columns available as attributes."""
        columns = self._columns
        self.observations = [columns[f"obs/{name}"] for name in self._names]
        self.continuous = columns.get("continuous_action")
        self.discrete = columns.get("discrete_action")
        self.masks = columns.get("action_mask")
        self.log_prob = columns["log_prob"]
        self.rewards = columns["reward"]
        self.group_rewards = columns["group_reward"]
        self.group_steps = columns["group_step"]

    @property
    def used(self) -> int:
        """Number of rows in use."""
        return len(self._free) - self._left

    def take(self, count: int) -> Index:
        """Returns free rows, int64 [count]; the array itself must not be written to."""
        while self._left < count:
            self._grow()
        self._left -= count
        return self._free[self._left : self._left + count].copy()

    def give_back(self, rows: Sequence[int] | Index) -> None:
        """Returns rows to the pool."""
        count = len(rows)
        self._free[self._left : self._left + count] = rows
        self._left += count

    def _grow(self) -> None:
        size = len(self._free)

        def doubled(values: NDArray[Any]) -> NDArray[Any]:
            grown = np.zeros((2 * size, *values.shape[1:]), values.dtype)
            grown[:size] = values
            return grown

        if self._memory is not None:
            self._memory = doubled(self._memory)
        self._columns = {name: doubled(values) for name, values in self._columns.items()}
        self._versions, self._taken_at = doubled(self._versions), doubled(self._taken_at)
        free = np.empty(2 * size, np.int64)
        free[: self._left] = self._free[: self._left]
        free[self._left : self._left + size] = np.arange(size, 2 * size)
        self._free = free
        self._left += size
        self._bind()

    def remember(self, form: MemoryForm) -> None:
        """Allocates memories of another form; present memories are lost."""
        self.memory_form = form
        self._memory = np.zeros((len(self._free), form.size), np.float32) if form.size else None

    def observe(self, rows: Index, observations: Sequence[NDArray[Any]], masks: NDArray[np.uint8] | None) -> None:
        """Writes observations.

        Args:
            rows: [n].
            observations: [n, *shape] each.
            masks: uint8 [n, sum of branches]; None = all allowed.
        """
        for values, observation in zip(self.observations, observations, strict=True):
            values[rows] = observation
        if self.masks is not None:
            self.masks[rows] = 1 if masks is None else masks

    def act(self, rows: Sequence[int], actions: Actions, version: int, now: float) -> None:
        """Writes actions.

        Args:
            rows: [n].
            actions: Actions of n agents.
            version: Version of the policy that chose them.
            now: Monotonic seconds.
        """
        places = np.array(rows, np.int64)
        if self.continuous is not None:
            self.continuous[places] = actions.continuous
        if self.discrete is not None:
            self.discrete[places] = actions.discrete
        self.log_prob[places] = actions.log_prob
        if self._memory is not None:
            self._memory[places] = actions.memory_in
        self._versions[places] = version
        self._taken_at[places] = now

    def reward(self, rows: Sequence[int], rewards: NDArray[np.float32], group_rewards: NDArray[np.float32]) -> None:
        """Writes rewards, [n] each."""
        self.rewards[rows] = rewards
        self.group_rewards[rows] = group_rewards

    def copy_seen(self, sources: Sequence[int], targets: Index) -> None:
        """Copies observations and allowed choices between rows."""
        for values in self.observations:
            values[targets] = values[sources]
        if self.masks is not None:
            self.masks[targets] = self.masks[sources]

    def rows(self, segments: AgentSegments) -> Rows:
        """Returns the rows of the segments, at least one; columns without information are left out."""
        rows = segments.row_numbers
        columns = {name: values.take(rows, axis=0) for name, values in self._columns.items()}
        if self._has_masks and columns["action_mask"].all():
            del columns["action_mask"]
        if not columns["group_reward"].any():
            del columns["group_reward"]
        if not segments.grouped:
            del columns["group_step"]
        memory = None
        if self._memory is not None:
            memory = self._memory.take(rows[remembered_rows(segments.lengths, self.memory_form.stride)], axis=0)
        return Rows(columns, self._versions.take(rows), float(self._taken_at.take(rows).min()), memory)

    def seen(self, rows: Index) -> tuple[list[NDArray[Any]], NDArray[np.uint8] | None]:
        """Returns observations at rows, [n, *shape] each, and the allowed choices, uint8 or None = all."""
        masks = None if self.masks is None else self.masks.take(rows, axis=0)
        return [values.take(rows, axis=0) for values in self.observations], (
            None if masks is None or masks.all() else masks
        )
