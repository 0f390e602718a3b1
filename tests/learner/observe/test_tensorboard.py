"""Tests event files by reading them with TensorBoard."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from tensorboard.backend.event_processing import plugin_event_accumulator

from learner.observe.stats import Aggregation, StatsReporter
from learner.observe.tensorboard import HYPERPARAMETERS, TensorBoardWriter, settings_table
from tests.learner.observe.disk import no_larger_than


def read(folder: Path) -> Any:
    """Returns TensorBoard's own reader of a folder, with everything loaded."""
    reader: Any = plugin_event_accumulator.EventAccumulator(str(folder))  # type: ignore[no-untyped-call]
    return reader.Reload()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Returns the points of a curve as TensorBoard shows it."""
    return [(event.step, round(float(event.tensor_proto.float_val[0]), 3)) for event in read(folder).Tensors(tag)]


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    """Scalars, histograms and texts arrive under ML-Agents' names in the behavior's folder."""
    writer = TensorBoardWriter(tmp_path)
    stats = StatsReporter("CartPole", [writer])
    stats.write_text(
        HYPERPARAMETERS, settings_table({"batch_size": 64, "network": {"units": 128, "x": {}}, "odd": "x|y\n"})
    )
    for step in (2048, 4096):
        stats.add_stats("Environment/Cumulative Reward", np.arange(step / 1024), Aggregation.HISTOGRAM)
        stats.add_stat("Losses/Policy Loss", step / 1024)
        stats.set_stat("Is Training", 1.0)
        stats.set_stat("Step", step)
        stats.write_stats(step)
    writer.close()
    tags = set(read(tmp_path / "CartPole").Tags()["tensors"])
    assert tags == {
        "Environment/Cumulative Reward",
        "Environment/Cumulative Reward_hist",
        "Losses/Policy Loss",
        HYPERPARAMETERS,
    }
    assert scalars(tmp_path / "CartPole", "Losses/Policy Loss") == [(2048, 2.0), (4096, 4.0)]
    assert scalars(tmp_path / "CartPole", "Environment/Cumulative Reward") == [(2048, 0.5), (4096, 1.5)]
    text = read(tmp_path / "CartPole").Tensors(HYPERPARAMETERS)[0].tensor_proto.string_val[0].decode()
    assert text.splitlines()[2:] == [
        "| batch_size | 64 |", "| network.units | 128 |", "| network.x | {} |", "| odd | x\\|y\\n |",
    ]  # fmt: skip
    assert [path.name.startswith("events.out.tfevents.") for path in (tmp_path / "CartPole").iterdir()] == [True]


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0], [1.0, 2.0, 2.5], [-1e308, 1e308]])
def test_histograms_of_any_values_are_readable(tmp_path: Path, values: list[float]) -> None:
    """Histograms of single, equal and overflowing values count all of them."""
    writer = TensorBoardWriter(tmp_path)
    stats = StatsReporter("A", [writer])
    stats.add_stats("key", np.array(values), Aggregation.HISTOGRAM)
    stats.write_stats(1)
    writer.close()
    tensor = read(tmp_path / "A").Tensors("key_hist")[0].tensor_proto
    buckets = np.frombuffer(tensor.tensor_content, dtype=np.float32).reshape(-1, 3)
    assert buckets[:, 2].sum() == len(values)


def test_a_resumed_run_hides_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    """After a resume, points after the checkpoint's step are hidden."""
    earlier = TensorBoardWriter(tmp_path)
    stats = StatsReporter("A", [earlier])
    for step in (100, 200, 300):
        stats.add_stat("key", 1.0)
        stats.write_stats(step)
    earlier.close()
    later = TensorBoardWriter(tmp_path)
    later.restart("A", 200)
    stats = StatsReporter("A", [later])
    stats.write_text(HYPERPARAMETERS, "again")
    stats.add_stat("key", 2.0)
    stats.write_stats(250)
    later.close()
    # File names carry the second: the later file must be read second, as when a person resumes a run.
    first, second = sorted((tmp_path / "A").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    second.rename(second.with_name("events.out.tfevents.9999999999.z"))
    assert first.exists()
    assert scalars(tmp_path / "A", "key") == [(100, 1.0), (200, 1.0), (250, 2.0)]


@pytest.mark.parametrize("category", ["", ".", "..", "../other", "a/b", "a\\b", "a\0b"])
def test_a_category_never_leaves_the_run_folder(tmp_path: Path, category: str) -> None:
    """A name that is no folder name is refused."""
    with pytest.raises(ValueError, match="valid folder name"):
        TensorBoardWriter(tmp_path).write_text(category, "t", "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("full_from", [0, 100])
def test_a_full_disk_costs_what_did_not_fit(tmp_path: Path, full_from: int) -> None:
    """On a full disk values are lost with one warning, and a line says when writing works again."""
    writer = TensorBoardWriter(tmp_path)
    stats = StatsReporter("A", [writer])

    def write(first: int, last: int) -> None:
        for step in range(first, last):
            stats.add_stat("key", 1.0)
            stats.write_stats(step)

    with capture_logs() as lines:
        write(0, full_from)
        size_bytes = next((tmp_path / "A").iterdir()).stat().st_size + 20 if full_from else 10
        with no_larger_than(size_bytes):  # at first, not even the file's first record has room
            if not full_from:
                stats.restart(0)
            write(full_from, 200)
        write(200, 300)
    writer.close()
    assert [line["event"] for line in lines] == ["stats_not_written", "stats_written_again"]
    assert len(list((tmp_path / "A").iterdir())) == 1
    assert [step for step, _ in scalars(tmp_path / "A", "key")] == [*range(full_from), *range(200, 300)]


def test_a_clock_that_was_set_back_hides_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard finds the file of the next start even if the clock was set back."""

    def start(step: int) -> None:
        writer = TensorBoardWriter(tmp_path)
        stats = StatsReporter("A", [writer])
        stats.add_stat("key", float(step))
        stats.write_stats(step)
        writer.close()

    start(1)
    running = read(tmp_path / "A")
    hours_ago = time.time_ns() - 5 * 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: hours_ago)
    for step in (2, 3):
        start(step)
        assert [event.step for event in running.Reload().Tensors("key")] == list(range(1, step + 1))
