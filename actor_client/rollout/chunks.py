"""Builds chunks of closed segments and finished episodes: the columns of trajectory.proto, within the limits."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import ColumnRole
from rollcast.specs import BehaviorSpec

from actor_client.policy.actions import NO_MEMORY, MemoryForm
from actor_client.rollout.link import ChunkLimits

Index = NDArray[np.int64]


class Rows(NamedTuple):
    """The N rows of some segments, segment after segment.

    Attributes:
        columns: STEP columns by name, [N, ...] each, without `version_offset`.
        versions: Versions that chose the actions, uint64 [N].
        oldest_seconds: Time of the oldest row, in monotonic seconds.
        memory: The MEMORY column, float32 [M, m]: the memory before the first row of each segment and before every
            stride-th row after it; None without memory.
    """

    columns: dict[str, NDArray[Any]]
    versions: NDArray[np.uint64]
    oldest_seconds: float
    memory: NDArray[np.float32] | None = None


def remembered_rows(lengths: Index, stride: int) -> Index:
    """Returns the rows of segments that carry a memory, int64 [M], in order.

    Args:
        lengths: Rows of each segment, int64 [S]; the segments are consecutive.
        stride: Rows between two memories of a segment.
    """
    counts = -(-lengths // stride)
    begins = np.repeat(np.cumsum(lengths) - lengths, counts)
    within = np.arange(len(begins)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows: Index = begins + stride * within
    return rows


class SegmentTable(Protocol):
    """S closed segments, in the order in which they must be sent."""

    @property
    def lengths(self) -> Index:
        """Rows of each segment, int64 [S], at least 1."""

    @property
    def bundles(self) -> Sequence[int] | None:
        """Sizes of consecutive runs of segments that should share a chunk, summing to S; None = all are free."""

    @property
    def finals(self) -> list[NDArray[Any]]:
        """Observations after the last row of each, [S, *shape], one array per observation."""

    @property
    def final_masks(self) -> NDArray[np.uint8] | None:
        """Allowed choices after the last row, uint8 [S, sum of branches]; None = all."""

    def __len__(self) -> int: ...

    def part(self, rows: slice) -> Self:
        """Returns some of the segments."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the SEGMENT columns as in trajectory.proto."""


Table = TypeVar("Table", bound=SegmentTable)
Table_contra = TypeVar("Table_contra", bound=SegmentTable, contravariant=True)


class RowSource(Protocol[Table_contra]):
    """Provides the rows of one kind of segments."""

    def rows(self, segments: Table_contra) -> Rows:
        """Returns the rows of the segments, at least one."""


class EpisodeTable(Protocol):
    """Records of finished episodes."""

    @property
    def info_names(self) -> list[str]:
        """Names of `info/` columns."""

    @property
    def column_bytes(self) -> int:
        """Bytes per row of all other EPISODE columns."""

    @property
    def opponents(self) -> tuple[str, ...]:
        """Names that `episode/opponent` indexes."""

    def __len__(self) -> int: ...

    def part(self, rows: slice) -> Self:
        """Returns some of the records."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the EPISODE columns as in trajectory.proto."""


COLUMN_OVERHEAD_BYTES: Final = 160
"""Most bytes of a column's name, role, type, shape and framing: names have up to 80 bytes, shapes up to 8 axes."""
CHUNK_OVERHEAD_BYTES: Final = 1024
"""Bytes of the chunk's own numbers, and of the counts by reason."""
SEGMENT_COLUMN_BYTES: Final = 4 + 1 + 4 + 8 + 8 + 4
"""length, end, env, agent, episode, first_step."""
OTHER_COLUMNS: Final = 30
"""Columns that are neither observations nor infos, rounded up."""


class ChunkBuilder:
    """Builds chunks for one behavior.

    Args:
        spec: The behavior's spec.
        limits: The learner's limits.
        agents: Number of agents that act.
        behavior_index: The learner's number of the behavior.
        team: The declared team.
        row_bytes: Bytes of one row of all STEP columns.
        masked: Whether there are action masks.
        segment_column_bytes: Bytes per row of all SEGMENT columns.
        other_columns: Most columns that are neither observations nor infos.
        memory: Form of an agent's memory.

    Attributes:
        segment_bytes: Bytes of a segment without its rows.
        max_segment_rows: Most rows of a segment that fits a chunk; at least 1.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        limits: ChunkLimits,
        *,
        agents: int,
        behavior_index: int,
        team: int,
        row_bytes: int,
        masked: bool,
        segment_column_bytes: int = SEGMENT_COLUMN_BYTES,
        other_columns: int = OTHER_COLUMNS,
        memory: MemoryForm = NO_MEMORY,
    ) -> None:
        self._observations = [part.name for part in spec.observations]
        self._limits = limits
        self._agents = agents
        self._behavior_index = behavior_index
        self._team = team
        self._row_bytes = row_bytes = row_bytes + memory.row_bytes
        finals = sum(part.size_bytes for part in spec.observations) + (spec.action.mask_size if masked else 0)
        self.segment_bytes = segment_column_bytes + finals + memory.segment_bytes
        columns = 2 * len(spec.observations) + other_columns
        self._budget_bytes = limits.max_chunk_bytes - CHUNK_OVERHEAD_BYTES - columns * COLUMN_OVERHEAD_BYTES
        fitting = (self._budget_bytes - self.segment_bytes) // row_bytes
        if limits.max_chunk_steps:
            fitting = min(fitting, limits.max_chunk_steps)
        # A step that cannot fit at all was refused at DeclareBehavior.
        self.max_segment_rows = max(1, fitting)

    def fits(self, rows: int, segments: int) -> bool:
        """Returns whether segments with a total of ``rows`` rows fit one chunk."""
        most = self._limits.max_chunk_steps
        within = rows * self._row_bytes + segments * self.segment_bytes <= self._budget_bytes
        return within and (not most or rows <= most)

    def build(
        self, source: RowSource[Table], segments: Table, episodes: EpisodeTable | None, *, generation: int, now: float
    ) -> Iterator[Chunk]:
        """Yields the chunks of all given segments and records, each within the limits.

        Args:
            source: Provides the rows.
            segments: Segments to send, in order.
            episodes: Records to send; they go into the first chunks with room, at most one for each row so far, because
                the learner counts no more episodes than it has received rows.
            generation: Generation of the policies that acted.
            now: Monotonic seconds.
        """
        sent = rows = 0
        total = len(episodes) if episodes is not None else 0
        for part in self._parts(segments):
            chunk = self._chunk(generation)
            room = self._budget_bytes - self._add_segments(chunk, source, part, now)
            rows += chunk.rows
            fitting = min(self._fitting_episodes(episodes, room), rows - sent)
            if episodes is not None and fitting and sent < total:
                self._add_episodes(chunk, episodes.part(slice(sent, sent + fitting)))
                sent += chunk.episodes
            yield chunk
        if episodes is not None and sent < total:
            yield from self.build_episodes(episodes.part(slice(sent, total)), generation=generation)

    def build_episodes(self, episodes: EpisodeTable, *, generation: int) -> Iterator[Chunk]:
        """Yields chunks that contain only records of episodes, each within the limits."""
        sent = 0
        while sent < len(episodes):
            chunk = self._chunk(generation)
            fitting = max(1, self._fitting_episodes(episodes, self._budget_bytes))
            self._add_episodes(chunk, episodes.part(slice(sent, sent + fitting)))
            sent += chunk.episodes
            yield chunk

    def _parts(self, segments: Table) -> list[Table]:
        if not len(segments):
            return []
        if self.fits(int(segments.lengths.sum()), len(segments)):
            return [segments]
        return [segments.part(rows) for rows in split(segments.lengths.tolist(), self.fits, segments.bundles)]

    def _chunk(self, generation: int) -> Chunk:
        return Chunk(generation=generation, behavior_index=self._behavior_index, team=self._team, agents=self._agents)

    def _add_segments(self, chunk: Chunk, source: RowSource[Table], segments: Table, now: float) -> int:
        """Adds all columns of steps and segments, and returns their bytes."""
        columns, versions, oldest_seconds, memory = source.rows(segments)
        base = versions.min()
        if versions.max() != base:
            columns["version_offset"] = (versions - base).astype(np.uint32)
        _put(chunk, columns, ColumnRole.STEP)
        if memory is not None:
            _put(chunk, {"memory": memory}, ColumnRole.MEMORY)
        _put(chunk, segments.columns(), ColumnRole.SEGMENT)
        finals = {f"final_obs/{name}": part for name, part in zip(self._observations, segments.finals, strict=True)}
        if segments.final_masks is not None:
            finals["final_action_mask"] = segments.final_masks
        _put(chunk, finals, ColumnRole.FINAL)
        chunk.base_version = int(base)
        chunk.age_seconds = max(0.0, now - oldest_seconds)
        chunk.segments, chunk.rows = len(segments), len(versions)
        return len(versions) * self._row_bytes + len(segments) * self.segment_bytes

    def _fitting_episodes(self, episodes: EpisodeTable | None, room_bytes: int) -> int:
        """Returns how many records fit in addition to the chunk's content."""
        if episodes is None:
            return 0
        infos = len(episodes.info_names)
        room_bytes -= infos * COLUMN_OVERHEAD_BYTES
        return max(0, room_bytes // (episodes.column_bytes + 4 * infos))

    def _add_episodes(self, chunk: Chunk, records: EpisodeTable) -> None:
        _put(chunk, records.columns(), ColumnRole.EPISODE)
        chunk.opponents = records.opponents
        chunk.episodes = len(records)


def _put(chunk: Chunk, columns: dict[str, NDArray[Any]], role: ColumnRole) -> None:
    chunk.columns.update(columns)
    chunk.roles.update(dict.fromkeys(columns, role))


def split(
    lengths: Sequence[int], fits: Callable[[int, int], bool], bundles: Sequence[int] | None = None
) -> list[slice]:
    """Returns consecutive slices of segments, each of which fits if its first segment does.

    A bundle is split only if it alone does not fit.

    Args:
        lengths: Rows of each segment.
        fits: Returns whether a total number of rows in a number of segments fits a slice.
        bundles: Sizes of consecutive runs of segments that should stay together; None = each is alone.
    """
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
