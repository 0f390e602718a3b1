"""Closed segments and finished episodes of agents wait for company, become chunks, and are sent."""

from collections.abc import Sequence
from typing import Final

from rollcast.chunks import Chunk
from rollcast.specs import BehaviorSpec

from actor_client.rollout.agents.closed import ClosedSegment, join
from actor_client.rollout.agents.pool import RowPool
from actor_client.rollout.agents.statistics import WaitingStats
from actor_client.rollout.chunks import OTHER_COLUMNS, SEGMENT_COLUMN_BYTES, ChunkBuilder
from actor_client.rollout.link import BehaviorLink
from actor_client.rollout.records import AgentEpisodes, EpisodeRecord

MAX_STATS_AGE_SECONDS: Final = 1.0
"""Statistics wait no longer for a chunk that takes them along."""
_GROUP_COLUMN_BYTES: Final = 8 + 8 + 1
"""group, group_episode, group_end."""
_MORE_COLUMNS: Final = 6
"""Of groups, over those of environments."""


class Outbox:
    """What waits to be sent.

    Args:
        spec: What is recorded.
        link: Where chunks go, and the limits.
        pool: Where the rows are; those that were sent are given back.

    Attributes:
        rows: Rows that wait.
        stats: Records that ride with the next chunk.
        horizon: Most rows of a segment: the time horizon, or what fits a chunk.
    """

    __slots__ = (
        "_builder",
        "_bundles",
        "_link",
        "_pool",
        "_records",
        "_segments",
        "_since_seconds",
        "_spec",
        "horizon",
        "rows",
        "stats",
    )

    def __init__(self, spec: BehaviorSpec, link: BehaviorLink, pool: RowPool) -> None:
        self._spec = spec
        self._link = link
        self._pool = pool
        self._bundles: list[Sequence[ClosedSegment]] = []
        self._records: list[EpisodeRecord] = []
        self._segments = 0
        self._since_seconds = 0.0
        self.rows = 0
        self.stats = WaitingStats()
        self.prepare()

    def prepare(self) -> None:
        """Reads the learner's settings, which may change with its generation."""
        link = self._link
        self._builder = ChunkBuilder(
            self._spec,
            link.limits,
            agents=0,
            behavior_index=link.behavior_index,
            team=link.team,
            row_bytes=self._pool.row_bytes,
            masked=bool(self._spec.action.discrete_branches),
            segment_column_bytes=SEGMENT_COLUMN_BYTES + _GROUP_COLUMN_BYTES,
            other_columns=OTHER_COLUMNS + _MORE_COLUMNS,
            memory=self._pool.memory_form,
        )
        self.horizon = max(1, min(link.time_horizon, self._builder.max_segment_rows))

    def add(self, bundle: Sequence[ClosedSegment], now: float) -> None:
        """Takes over segments that should share a chunk, at least one."""
        self._begin(now)
        self._bundles.append(bundle)
        self._segments += len(bundle)
        self.rows += sum(len(segment.rows) for segment in bundle)

    def record(self, record: EpisodeRecord, now: float) -> None:
        """Takes over the record of an episode."""
        self._begin(now)
        self._records.append(record)

    def _begin(self, now: float) -> None:
        if not (self._bundles or self._records):
            self._since_seconds = now

    def is_due(self, now: float) -> bool:
        """Whether what waits is enough, or old enough, to be sent."""
        if self.stats and now - self.stats.since_seconds >= MAX_STATS_AGE_SECONDS:
            return True
        if not (self._bundles or self._records):
            return False
        limits = self._link.limits
        row_bytes = self._pool.row_bytes + self._pool.memory_form.row_bytes
        size = self.rows * row_bytes + self._segments * self._builder.segment_bytes
        return (
            size >= limits.target_chunk_bytes
            or 0 < limits.max_chunk_steps <= self.rows
            or now - self._since_seconds >= limits.max_chunk_age_seconds
        )

    def flush(self, generation: int | None, agents: int, now: float) -> None:
        """Sends everything that waits.

        Args:
            generation: Of the policies that acted; None = there was none yet, and only statistics can wait.
            agents: Agents that act at present.
            now: Monotonic seconds.
        """
        if generation is None:
            return
        bundles, records = self._take()
        if bundles or records:
            segments = join(bundles, self._pool.seen)
            episodes = AgentEpisodes(records, self._spec.grouped) if records else None
            for chunk in self._builder.build(self._pool, segments, episodes, generation=generation, now=now):
                self._send(chunk, agents)
            self._give_back(bundles)
        while self.stats:  # nothing else is to be sent, or left them room
            link = self._link
            alone = Chunk(generation=generation, behavior_index=link.behavior_index, team=link.team)
            self._send(alone, agents)

    def _send(self, chunk: Chunk, agents: int) -> None:
        chunk.agents = agents
        if self.stats:
            self.stats.board(chunk, self._link.limits.max_chunk_bytes)
        self._link.books.seal(chunk.rows)
        self._link.send(chunk)

    def discard(self) -> int:
        """Gives up everything that waits and returns how many rows that were."""
        rows = self.rows
        bundles, _ = self._take()
        self._give_back(bundles)
        return rows

    def _take(self) -> tuple[list[Sequence[ClosedSegment]], list[EpisodeRecord]]:
        taken = self._bundles, self._records
        self._bundles, self._records = [], []
        self.rows = self._segments = 0
        return taken

    def _give_back(self, bundles: Sequence[Sequence[ClosedSegment]]) -> None:
        for bundle in bundles:
            for segment in bundle:
                self._pool.give_back(segment.rows)
                self._pool.give_back((segment.final,))
