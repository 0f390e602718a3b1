"""Statistics records of environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rollcast.enums import StatAggregation
from rollcast.trajectories import Chunk
from structlog.testing import capture_logs

from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.stats import StatsReporter
from learner.trainers.records import MAX_KEYS, MAX_METRIC_KEYS, RecordTally


def records(keys: Sequence[str], *values: tuple[int, float, int]) -> Chunk:
    """A chunk with records: index of the key, value, aggregation."""
    numbers, numerics, kinds = zip(*values, strict=True)
    columns: dict[str, Any] = {
        "stat/key": np.array(numbers, np.uint32),
        "stat/value": np.array(numerics, np.float32),
        "stat/aggregation": np.array(kinds, np.uint8),
    }
    return Chunk(columns=columns, stat_keys=tuple(keys))


def shown(metrics: LearnerMetrics) -> dict[str, float]:
    """The statistics in the metrics, by key."""
    return {
        sample.labels["key"]: sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name == "rollcast_learner_environment_statistic"
    }


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (StatAggregation.AVERAGE, 3.0),
        (StatAggregation.MOST_RECENT, 2.0),
        (StatAggregation.SUM, 9.0),
        (StatAggregation.HISTOGRAM, 3.0),
    ],
)
def test_records_reach_trackers_and_metrics_under_their_own_keys(aggregation: int, expected: float) -> None:
    """The value is what the aggregation says, of all chunks since the last summary."""
    stats, metrics = StatsReporter("Test"), LearnerMetrics()
    tally = RecordTally(stats, metrics.behavior("Test"))
    tally.add(records(["a/b c"], (0, 1.0, aggregation), (0, 6.0, aggregation)))
    tally.add(records(["other", "a/b c"], (1, 2.0, aggregation)))
    assert shown(metrics) == {"a/b c": expected}
    summary = stats.write_stats(1)["a/b c"]
    assert (summary.value, summary.count) == (expected, 3)


def test_hostile_keys_do_not_become_endless_series() -> None:
    """The first keys stay known, across summaries; later ones are left out with one line, and fewer are metrics."""
    stats, metrics = StatsReporter("Test"), LearnerMetrics()
    tally = RecordTally(stats, metrics.behavior("Test"))
    written: set[str] = set()
    with capture_logs() as logs:
        for start in range(0, 3 * MAX_KEYS, 100):
            keys = [f"key{number}" for number in range(start, start + 100)]
            tally.add(records(keys, *((number, 1.0, StatAggregation.AVERAGE) for number in range(100))))
            written.update(stats.write_stats(start))
    assert written == {f"key{number}" for number in range(MAX_KEYS)}
    assert set(shown(metrics)) == {f"key{number}" for number in range(MAX_METRIC_KEYS)}
    assert [line["event"] for line in logs] == ["statistics_refused"]
    tally.add(records(["key7", "new"], (0, 5.0, StatAggregation.AVERAGE), (1, 5.0, StatAggregation.AVERAGE)))
    assert set(stats.write_stats(1)) == {"key7"}


def test_a_value_that_is_no_number_shows_as_none() -> None:
    """NaN in a chunk neither raises nor hides the others."""
    stats, metrics = StatsReporter("Test"), LearnerMetrics()
    RecordTally(stats, metrics.behavior("Test")).add(
        records(["a", "b"], (0, float("nan"), StatAggregation.AVERAGE), (1, 2.0, StatAggregation.AVERAGE))
    )
    assert shown(metrics)["b"] == 2.0
