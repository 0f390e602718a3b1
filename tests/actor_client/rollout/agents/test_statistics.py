"""Tests the statistics of simulators."""

from __future__ import annotations

import numpy as np
import structlog
from rollcast.enums import StatAggregation

from actor_client.rollout.agents.outbox import MAX_WAITING_RECORDS
from tests.actor_client.rollout.agents.driver import SPEC, Driver
from tests.actor_client.rollout.harness import KeepingLink, limits

AVERAGE, SUM = StatAggregation.AVERAGE, StatAggregation.SUM


def test_they_ride_with_the_next_chunk() -> None:
    """Statistics are sent in order with the next chunk."""
    driver = Driver()
    driver.recorder.add_stats(3, [("Jumps", 1.0, SUM), ("Height", 2.5, AVERAGE), ("Jumps", 4.0, SUM)])
    driver.ask({1: 10.0})
    driver.end({1: 11.0})
    driver.recorder.flush()

    (chunk,) = driver.link.chunks
    assert (chunk.rows, chunk.stat_keys) == (1, ("Jumps", "Height"))
    assert chunk.columns["stat/key"].tolist() == [0, 1, 0]
    assert chunk.columns["stat/aggregation"].tolist() == [SUM, AVERAGE, SUM]
    assert chunk.columns["stat/env"].tolist() == [3, 3, 3]
    assert chunk.columns["stat/value"].tolist() == [1.0, 2.5, 4.0]


def test_they_leave_alone_after_a_second() -> None:
    """Without rows, statistics are sent by the poll after a second."""
    driver = Driver()
    driver.recorder.add_stats(0, [("Jumps", 1.0, SUM)])
    driver.now += 0.9
    driver.recorder.poll()
    assert driver.link.chunks == []
    driver.now += 0.2
    driver.recorder.poll()

    (chunk,) = driver.link.chunks
    assert (chunk.segments, chunk.episodes, chunk.stat_keys) == (0, 0, ("Jumps",))


def test_what_the_learner_would_refuse_is_left_out() -> None:
    """Invalid keys are dropped and reported once; numbers beyond float32 are sent as infinite."""
    driver = Driver()
    with structlog.testing.capture_logs() as lines:
        bad = [("", 1.0, SUM), ("k" * 257, 1.0, SUM), ("a\nb", 1.0, SUM)]
        driver.recorder.add_stats(0, [*bad, ("Good", 1e300, SUM), ("k" * 256, float("nan"), SUM)])
    driver.recorder.cut()

    assert [line["event"] for line in lines] == ["stat_key_refused"]
    (chunk,) = driver.link.chunks
    assert chunk.stat_keys == ("Good", "k" * 256)
    assert np.isinf(chunk.columns["stat/value"][0])
    assert np.isnan(chunk.columns["stat/value"][1])


def test_many_keys_are_spread_over_chunks() -> None:
    """Many keys are spread over chunks within the limits of contract and learner."""
    driver = Driver(KeepingLink(SPEC, limits=limits(largest=1 << 20)))
    keys = [f"key {number} {'ä' * 200}" for number in range(2500)]
    driver.recorder.add_stats(0, [(key, float(place), SUM) for place, key in enumerate(keys)])
    driver.recorder.cut()

    assert [key for chunk in driver.link.chunks for key in chunk.stat_keys] == keys
    values = [value for chunk in driver.link.chunks for value in chunk.columns["stat/value"].tolist()]
    assert values == list(range(2500))


def test_a_flood_costs_the_oldest() -> None:
    """While nothing can be sent, the oldest records beyond the limit are dropped with a warning."""
    driver = Driver(has_policy=False)
    with structlog.testing.capture_logs() as lines:
        driver.recorder.add_stats(0, [("Jumps", float(number), SUM) for number in range(MAX_WAITING_RECORDS + 100)])
    driver.recorder.swap(1, 0)
    driver.recorder.cut()

    values = [value for chunk in driver.link.chunks for value in chunk.columns["stat/value"].tolist()]
    assert values == list(range(100, MAX_WAITING_RECORDS + 100))
    assert [line["event"] for line in lines] == ["stats_left_out"]
