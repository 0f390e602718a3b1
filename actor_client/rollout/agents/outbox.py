"""Collects closed segments, finished episodes and statistics, builds chunks of them, and sends them."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast import limits
from rollcast.chunks import Chunk
from rollcast.enums import ColumnRole, StatAggregation
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle

from actor_client.rollout.agents.rows import ClosedSegment, RowPool, join
from actor_client.rollout.chunks import (
    CHUNK_OVERHEAD_BYTES,
    COLUMN_OVERHEAD_BYTES,
    OTHER_COLUMNS,
    SEGMENT_COLUMN_BYTES,
    ChunkBuilder,
)
from actor_client.rollout.episodes import EpisodeRecord, EpisodeRecords
from actor_client.rollout.link import BehaviorLink

MAX_WAITING_RECORDS: Final = 8192
"""Most waiting records of all environments while no chunk is sent; beyond it the oldest are dropped."""
_RECORD_BYTES: Final = 4 + 1 + 4 + 4
_KEY_BYTES: Final = 4 * limits.MAX_STAT_KEY_LENGTH + 8
"""Bytes of the longest key in UTF-8, with its framing."""
_STAT_COLUMNS: Final = 4

_log = structlog.get_logger(__name__)


class WaitingStats:
    """Records that wait for a chunk.

    Attributes:
        since_seconds: Arrival of the oldest record, in monotonic seconds; undefined without records.
    """

    def __init__(self) -> None:
        self._records: deque[tuple[str, StatAggregation, int, float]] = deque(maxlen=MAX_WAITING_RECORDS)
        self._notices = Throttle()
        self.since_seconds = 0.0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, env: int, records: Iterable[tuple[str, float, StatAggregation]], now: float) -> None:
        """Adds records; those whose keys the learner would refuse are dropped with a warning.

        Args:
            env: Number of the environment.
            records: Key, value and aggregation of each.
            now: Monotonic seconds.
        """
        if not self._records:
            self.since_seconds = now
        for key, value, aggregation in records:
            if not 1 <= len(key) <= limits.MAX_STAT_KEY_LENGTH or not key.isprintable():
                self._say(
                    "stat_key_refused",
                    env=env,
                    key=key[:80],
                    limit=f"1 to {limits.MAX_STAT_KEY_LENGTH} printable characters",
                )
                continue
            if len(self._records) == MAX_WAITING_RECORDS:
                self._say("stats_left_out", env=env, limit=f"{MAX_WAITING_RECORDS} records between two chunks")
            self._records.append((key, aggregation, env, value))

    def _say(self, event: str, **values: object) -> None:
        if (left_out := self._notices.admit(event)) is not None:
            _log.warning(event, **values, left_out=left_out)

    def board(self, chunk: Chunk, max_chunk_bytes: int) -> None:
        """Adds as many records to a chunk as fit; at least some fit an otherwise empty chunk."""
        used = CHUNK_OVERHEAD_BYTES + sum(COLUMN_OVERHEAD_BYTES + values.nbytes for values in chunk.columns.values())
        room = max_chunk_bytes - used - _STAT_COLUMNS * COLUMN_OVERHEAD_BYTES
        keys: dict[str, int] = {}
        rows = []
        while self._records:
            key, aggregation, env, value = self._records[0]
            room -= _RECORD_BYTES if key in keys else _RECORD_BYTES + _KEY_BYTES
            if room < 0 or (key not in keys and len(keys) == limits.MAX_STAT_KEYS):
                break
            rows.append((keys.setdefault(key, len(keys)), aggregation, env, value))
            self._records.popleft()
        if not rows:
            return
        numbers, aggregations, envs, values = zip(*rows, strict=True)
        with np.errstate(over="ignore"):  # values beyond float32 become infinite, which statistics may be
            columns: dict[str, NDArray[Any]] = {
                "stat/key": np.array(numbers, np.uint32),
                "stat/aggregation": np.array(aggregations, np.uint8),
                "stat/env": np.array(envs, np.uint32),
                "stat/value": np.array(values, np.float64).astype(np.float32),
            }
        chunk.columns.update(columns)
        chunk.roles.update(dict.fromkeys(columns, ColumnRole.STAT))
        chunk.stat_keys = tuple(keys)


MAX_STATS_AGE_SECONDS: Final = 1.0
"""Longest time that statistics wait for a chunk."""
_GROUP_COLUMN_BYTES: Final = 8 + 8 + 1 + 8
"""group, group_episode, group_end, assignment."""
_MORE_COLUMNS: Final = 16
"""Columns of groups and matches, in addition to those of environments."""


class Outbox:
    """Closed segments and records that wait to be sent.

    Args:
        spec: The behavior's spec.
        link: The link that takes chunks and gives the limits.
        pool: The pool that holds the rows; sent rows are returned to it.

    Attributes:
        rows: Waiting rows.
        stats: Statistics for the next chunk.
        horizon: Most rows of a segment: the time horizon, or fewer if a chunk has room for fewer.
        assignment: Number of the assignment under which segments are made, in matches; 0 = not told.
    """

    def __init__(self, spec: BehaviorSpec, link: BehaviorLink, pool: RowPool) -> None:
        self.assignment = 0
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

    def fits(self, rows: int, segments: int) -> bool:
        """Returns whether segments with a total of ``rows`` rows fit one chunk."""
        return self._builder.fits(rows, segments)

    def add(self, bundle: Sequence[ClosedSegment], now: float) -> None:
        """Adds one or more segments that should share a chunk."""
        self._begin(now)
        self._bundles.append(bundle)
        self._segments += len(bundle)
        self.rows += sum(len(segment.rows) for segment in bundle)

    def record(self, record: EpisodeRecord, now: float) -> None:
        """Adds the record of an episode."""
        self._begin(now)
        self._records.append(record)

    def _begin(self, now: float) -> None:
        if not (self._bundles or self._records):
            self._since_seconds = now

    def is_due(self, now: float) -> bool:
        """Returns whether the waiting data is large or old enough to be sent."""
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
            generation: Generation of the policies that acted; None = none has acted, and only statistics can wait.
            agents: Agents that act at present.
            now: Monotonic seconds.
        """
        if generation is None:
            return
        bundles, records = self._take()
        if bundles or records:
            segments = join(bundles, self._pool.seen)
            episodes = EpisodeRecords(records, self._spec.grouped) if records else None
            for chunk in self._builder.build(self._pool, segments, episodes, generation=generation, now=now):
                if self.assignment and chunk.segments:
                    chunk.columns["assignment"] = np.full(chunk.segments, self.assignment, np.uint64)
                    chunk.roles["assignment"] = ColumnRole.SEGMENT
                self._send(chunk, agents)
            self._give_back(bundles)
        while self.stats:  # without other data, or without room for statistics in it
            link = self._link
            self._send(Chunk(generation=generation, behavior_index=link.behavior_index, team=link.team), agents)

    def _send(self, chunk: Chunk, agents: int) -> None:
        chunk.agents = agents
        if self.stats:
            self.stats.board(chunk, self._link.limits.max_chunk_bytes)
        self._link.books.seal(chunk.rows)
        self._link.send(chunk)

    def discard(self) -> int:
        """Discards all waiting data and returns the number of rows."""
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
