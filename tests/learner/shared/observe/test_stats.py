"""Tests statistics between two writes."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from structlog.testing import capture_logs

from learner.shared.observe.stats import MAX_HISTOGRAM_VALUES, MAX_KEYS, Aggregation, StatsReporter, StatSummary


class Recorder:
    """A writer that records its calls."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Mapping[str, StatSummary], int]] = []
        self.texts: list[tuple[str, str, str, int]] = []

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Records the summaries."""
        self.written.append((category, summaries, step))

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Records the text."""
        self.texts.append((category, title, text, step))

    def restart(self, category: str, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class FullDisk(Recorder):
    """A writer on a full disk for steps below 3."""

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Records the summaries and fails."""
        super().write(category, summaries, step)
        if step < 3:
            raise OSError(28, "No space left on device")

    def restart(self, category: str, step: int) -> None:
        """Fails."""
        raise OSError(28, "No space left on device")


def test_numbers_one_by_one_and_as_arrays_give_the_same_summary() -> None:
    """Single values and arrays give equal summaries, those of numpy."""
    values = np.random.default_rng(1).normal(1e6, 3.0, 1000).astype(np.float32)
    one_by_one, arrays = StatsReporter("A"), StatsReporter("A")
    for value in values:
        one_by_one.add_stat("Losses/Policy Loss", float(value))
    for part in np.split(values, [10, 11, 500]):
        arrays.add_stats("Losses/Policy Loss", part.reshape(1, -1))
    for summary in (one_by_one.summary("Losses/Policy Loss"), arrays.summary("Losses/Policy Loss")):
        assert summary is not None
        assert summary.count == 1000
        assert summary.mean == pytest.approx(values.astype(np.float64).mean(), rel=1e-12)
        assert summary.std == pytest.approx(values.astype(np.float64).std(), rel=1e-9)
        assert summary.total == pytest.approx(values.astype(np.float64).sum(), rel=1e-12)
        assert summary.latest == values[-1]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [(Aggregation.AVERAGE, 2.0), (Aggregation.SUM, 6.0), (Aggregation.MOST_RECENT, 3.0), (Aggregation.HISTOGRAM, 2.0)],
)
def test_aggregation_says_what_the_number_is(aggregation: Aggregation, expected: float) -> None:
    """The aggregation selects mean, sum or newest value; only a histogram keeps all."""
    stats = StatsReporter("A")
    for value in (1, 2, 3):
        stats.add_stat("key", value, aggregation)
    summary = stats.write_stats(0)["key"]
    assert summary.value == expected
    assert summary.values.tolist() == ([1.0, 2.0, 3.0] if aggregation is Aggregation.HISTOGRAM else [])


def test_writing_hands_over_and_starts_anew() -> None:
    """Every writer gets each value once, at the step of the write."""
    first, second = Recorder(), Recorder()
    stats = StatsReporter("CartPole", [first, second])
    stats.add_stat("a", 1)
    stats.set_stat("b", 7)
    stats.write_stats(100)
    stats.set_stat("b", 8)
    stats.write_stats(200)
    stats.write_stats(300)
    assert first.written == second.written
    assert [(category, sorted(summaries), step) for category, summaries, step in first.written] == [
        ("CartPole", ["a", "b"], 100),
        ("CartPole", ["b"], 200),
    ]
    assert first.written[1][1]["b"].value == 8


def test_values_that_are_not_finite_are_counted_apart() -> None:
    """NaN and infinities are counted separately and do not affect mean and sum."""
    stats = StatsReporter("A")
    stats.add_stat("mixed", math.nan)
    stats.add_stats("mixed", np.array([1.0, math.inf, 3.0]))
    stats.add_stat("none", -math.inf)
    stats.add_stats("huge", np.array([1e308, -1e308]))
    stats.add_stats("empty", np.zeros((0, 3)))
    summaries = stats.write_stats(0)
    mixed, none = summaries["mixed"], summaries["none"]
    assert (mixed.count, mixed.mean, mixed.not_finite) == (2, 2.0, 2)
    assert none.count == 0
    assert math.isnan(none.value)
    assert not math.isfinite(summaries["huge"].std), "too large to square, and no error"
    assert "empty" not in summaries


def test_memory_is_bounded() -> None:
    """The values of a histogram and the number of keys are limited."""
    stats = StatsReporter("A")
    stats.add_stats("h", np.arange(3.0 * MAX_HISTOGRAM_VALUES), Aggregation.HISTOGRAM)
    with capture_logs() as lines:
        for number in range(2 * MAX_KEYS):
            stats.add_stat(f"key {number}", 1)
    summaries = stats.write_stats(0)
    assert len(summaries) == MAX_KEYS
    assert summaries["h"].values.size == MAX_HISTOGRAM_VALUES
    assert summaries["h"].count == 3 * MAX_HISTOGRAM_VALUES
    assert [line["event"] for line in lines] == ["stat_keys_refused"]


def test_a_writer_that_fails_is_tried_again_and_the_others_go_on() -> None:
    """A failing writer loses its values with one warning and is retried, and each failure counts; others continue."""
    broken, sound = FullDisk(), Recorder()
    failed: list[object] = []
    stats = StatsReporter("A", [broken, sound], on_failure=failed.append)
    with capture_logs() as lines:
        stats.restart(0)
        stats.write_text("Hyperparameters", "| a |", 5)
        for step in range(5):
            stats.add_stat("key", step)
            stats.write_stats(step)
    assert len(broken.written) == len(sound.written) == 5
    assert sound.texts == [("A", "Hyperparameters", "| a |", 5)]
    assert failed == [broken] * 4
    events = [(line["event"], line["writer"]) for line in lines]
    assert events == [("stats_not_written", "FullDisk"), ("stats_written_again", "FullDisk")]
