"""Statistics that a simulator reports: they ride with the next chunk that has room."""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast import limits
from rollcast.chunks import Chunk
from rollcast.enums import ColumnRole, StatAggregation

from actor_client.notices import Notices
from actor_client.rollout.chunks import CHUNK_OVERHEAD_BYTES, COLUMN_OVERHEAD_BYTES

MAX_WAITING_RECORDS: Final = 8192
"""Of all environments, while no chunk is sent; then the oldest are left out."""
_RECORD_BYTES: Final = 4 + 1 + 4 + 4
_KEY_BYTES: Final = 4 * limits.MAX_STAT_KEY_LENGTH + 8
"""Of the longest key in UTF-8, with its framing."""
_STAT_COLUMNS: Final = 4

_log = structlog.get_logger(__name__)


class WaitingStats:
    """Records that wait for a chunk.

    Attributes:
        since_seconds: When the oldest came, in monotonic seconds; meaningless without records.
    """

    __slots__ = ("_notices", "_records", "since_seconds")

    def __init__(self) -> None:
        self._records: deque[tuple[str, StatAggregation, int, float]] = deque(maxlen=MAX_WAITING_RECORDS)
        self._notices = Notices()
        self.since_seconds = 0.0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, env: int, records: Iterable[tuple[str, float, StatAggregation]], now: float) -> None:
        """Takes over records; those whose keys the learner would refuse are left out with a warning.

        Args:
            env: Number of the environment.
            records: Key, value and how values of the key are put together.
            now: Monotonic seconds.
        """
        if not self._records:
            self.since_seconds = now
        for key, value, aggregation in records:
            if not 1 <= len(key) <= limits.MAX_STAT_KEY_LENGTH or not key.isprintable():
                self._say(
                    "stat_key_refused", env=env, key=key[:80], limit=f"1 to {limits.MAX_STAT_KEY_LENGTH} printable"
                )
                continue
            if len(self._records) == MAX_WAITING_RECORDS:
                self._say("stats_left_out", env=env, limit=f"{MAX_WAITING_RECORDS} records between two chunks")
            self._records.append((key, aggregation, env, value))

    def _say(self, event: str, **values: object) -> None:
        if (left_out := self._notices.due(event)) is not None:
            _log.warning(event, **values, left_out=left_out)

    def board(self, chunk: Chunk, max_chunk_bytes: int) -> None:
        """Adds as many records to a chunk as it has room for; one that holds nothing else has room for some."""
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
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and statistics may be that
            columns: dict[str, NDArray[Any]] = {
                "stat/key": np.array(numbers, np.uint32),
                "stat/aggregation": np.array(aggregations, np.uint8),
                "stat/env": np.array(envs, np.uint32),
                "stat/value": np.array(values, np.float64).astype(np.float32),
            }
        chunk.columns.update(columns)
        chunk.roles.update(dict.fromkeys(columns, ColumnRole.STAT))
        chunk.stat_keys = tuple(keys)
