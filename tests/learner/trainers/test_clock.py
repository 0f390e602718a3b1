"""The phases of a trainer."""

from __future__ import annotations

from learner.observe.stats import StatsReporter
from learner.trainers.clock import UpdateClock


def test_phases_are_measured_and_pauses_are_not() -> None:
    """Two seconds of collection around a pause, and one of update."""
    now = 100.0
    stats = StatsReporter("Test")
    clock = UpdateClock(stats, lambda: now)
    now += 0.5
    clock.pause()
    now += 1000
    clock.resume()
    now += 1.5
    clock.begin_update()
    now += 1.0
    clock.end_update(300)
    names = ("Collect Seconds", "Update Seconds", "Steps per Second")
    summaries = [stats.summary(f"Rollcast/{name}") for name in names]
    assert [summary.mean for summary in summaries if summary is not None] == [2.0, 1.0, 100.0]
