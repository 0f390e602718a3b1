"""Tests the lines of mlagents-learn, which users' scripts parse."""

from __future__ import annotations

import io
import re

import pytest

from learner.shared.observe.console import ConsoleWriter
from learner.shared.observe.stats import Aggregation, StatsReporter


class _Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def console() -> io.StringIO:
    """Returns the printed lines."""
    return io.StringIO()


@pytest.fixture
def reporter(console: io.StringIO) -> StatsReporter:
    """Returns a behavior whose training started 39.274 s ago."""
    clock = _Clock()
    writer = ConsoleWriter(console, clock)
    clock.seconds += 39.274
    return StatsReporter("3DBall", [writer])


def _lived(reporter: StatsReporter, *returns: float, is_training: bool = True) -> None:
    for value in returns:
        reporter.add_stat("Environment/Cumulative Reward", value, Aggregation.HISTOGRAM)
    reporter.set_stat("Is Training", float(is_training))


def test_a_summary_is_one_line(reporter: StatsReporter, console: io.StringIO) -> None:
    """A summary is a line with category, step, time, mean and spread of returns, and training state."""
    _lived(reporter, 1.0, 2.0, 3.0)
    reporter.write_stats(12000)
    assert console.getvalue() == (
        "[INFO] 3DBall. Step: 12000. Time Elapsed: 39.274 s. Mean Reward: 2.000. Std of Reward: 0.816. Training.\n"
    )


def test_each_summary_is_over_its_own_episodes(reporter: StatsReporter, console: io.StringIO) -> None:
    """Each summary has its own episodes, or says that there are none; a rating follows, a group's mean replaces the spread."""
    _lived(reporter, 5.0)
    reporter.set_stat("Self-play/ELO", 1203.25)
    reporter.write_stats(1000)
    _lived(reporter, is_training=False)
    reporter.write_stats(2000)
    _lived(reporter, 1.0)
    reporter.add_stat("Environment/Group Cumulative Reward", 4.5, Aggregation.HISTOGRAM)
    reporter.write_stats(3000)
    reporter.add_stat("Losses/Policy Loss", 0.1)
    reporter.write_stats(3500)  # losses alone, at the end of a run, are no summary
    first, second, grouped = console.getvalue().splitlines()
    assert "Mean Reward: 1.000. Mean Group Reward: 4.500. Training." in grouped
    assert "Mean Reward: 5.000. Std of Reward: 0.000. ELO: 1203.250. Training." in first
    assert re.fullmatch(r"\[INFO\] 3DBall\. Step: 2000\. .*No episode .*\. Not Training\.", second)
