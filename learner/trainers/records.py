"""Statistics that environments send themselves: to the trackers under their own keys, and a few to the metrics."""

from __future__ import annotations

import structlog
from rollcast.enums import StatAggregation
from rollcast.trajectories import Chunk

from learner.observe.metrics.behaviors import BehaviorMetrics
from learner.observe.stats import Aggregation, StatsReporter

log = structlog.get_logger(__name__)

MAX_KEYS = 500
"""Different keys of one behavior in one start of the learner. Each is a curve of every tracker for ever, and a program
that puts a number into its keys would make them without end."""
MAX_METRIC_KEYS = 50
"""Of them, the first ones are time series of the metrics, too; what makes one is more expensive there."""


class RecordTally:
    """Takes the statistics records of chunks, and bounds how many keys there are.

    Args:
        stats: where they go.
        metrics: where the present value of the first keys is shown.
    """

    def __init__(self, stats: StatsReporter, metrics: BehaviorMetrics | None = None) -> None:
        self._stats = stats
        self._metrics = metrics
        self._keys: dict[str, bool] = {}  # whether the metrics show it
        self._has_warned = False

    def add(self, chunk: Chunk) -> None:
        """Adds the records of a chunk; those of keys beyond the limit are left out."""
        columns = chunk.columns
        if "stat/key" not in columns:
            return
        numbers = columns["stat/key"].tolist()
        kinds = columns.get("stat/aggregation")
        aggregations = [StatAggregation.AVERAGE] * len(numbers) if kinds is None else kinds.tolist()
        taken = [self._takes(key) for key in chunk.stat_keys]
        for number, value, kind in zip(numbers, columns["stat/value"].tolist(), aggregations, strict=True):
            if taken[number]:
                self._stats.add_stat(chunk.stat_keys[number], value, Aggregation(kind or StatAggregation.AVERAGE))
        if self._metrics is not None:
            for key in dict.fromkeys(chunk.stat_keys[number] for number in numbers):
                value = self._stats.value(key) if self._keys.get(key) else None
                if value is not None:
                    self._metrics.show_statistic(key, value)

    def _takes(self, key: str) -> bool:
        if key in self._keys:
            return True
        if len(self._keys) >= MAX_KEYS:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "statistics_refused",
                    behavior=self._stats.category,
                    key=key,
                    limit=MAX_KEYS,
                    action="new keys are left out; do not put numbers into the keys",
                )
            return False
        self._keys[key] = len(self._keys) < MAX_METRIC_KEYS
        return True
