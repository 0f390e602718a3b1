"""Tests event files by reading them with TensorBoard."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from tensorboard.backend.event_processing import data_provider, plugin_event_accumulator, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

from learner.shared.observe.stats import Aggregation, StatsReporter
from learner.training.writers.tensorboard import HYPERPARAMETERS, TensorBoardWriter, settings_table
from tests.learner.shared.observe.disk import no_larger_than


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
        "Histograms/Environment/Cumulative Reward",
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


def test_histograms_do_not_bury_the_curves(tmp_path: Path) -> None:
    """Histograms have a group of their own, and only the first and every tenth summary has one."""
    writer = TensorBoardWriter(tmp_path)
    stats = StatsReporter("A", [writer])
    for step in range(25):
        stats.add_stats("Environment/Cumulative Reward", np.arange(4.0), Aggregation.HISTOGRAM)
        stats.write_stats(step)
    writer.close()
    reader = read(tmp_path / "A")
    assert [event.step for event in reader.Tensors("Histograms/Environment/Cumulative Reward")] == [0, 10, 20]
    assert len(reader.Tensors("Environment/Cumulative Reward")) == 25


SETTINGS: dict[str, Any] = {
    "behaviors": {"A": {"trainer_type": "ppo", "hyperparameters": {"learning_rate": 0.5, "flag": True}, "none": None}},
    "default_settings": {"trainer_type": "sac"},
    "env_settings": {"seed": 7},
}


@pytest.mark.parametrize(
    ("settings", "behavior", "expected"),
    [
        (
            SETTINGS,
            "A",
            {
                "trainer_type": "ppo",
                "hyperparameters.learning_rate": 0.5,
                "hyperparameters.flag": True,
                "none": "",
                "seed": 7.0,
            },
        ),
        (SETTINGS, "Other", {"trainer_type": "sac", "seed": 7.0}),
        ({**SETTINGS, "behaviors": {"A": {"x\x1b[2J|": "<b>\n", "list": [1, 2]}}}, "A", None),
    ],
)
def test_the_table_of_hyperparameters(
    tmp_path: Path, settings: dict[str, Any], behavior: str, expected: dict[str, object] | None
) -> None:
    """TensorBoard's own table has a row with the settings of the behavior and the last values of its curves."""
    writer = TensorBoardWriter(tmp_path / "run-1", settings=settings)
    stats = StatsReporter(behavior, [writer])
    stats.write_text(HYPERPARAMETERS, settings_table({}))
    for value in (1.0, 7.0):
        stats.add_stat("Environment/Cumulative Reward", value)
        stats.write_stats(int(value))
    writer.close()
    multiplexer: Any = plugin_event_multiplexer.EventMultiplexer()  # type: ignore[no-untyped-call]
    multiplexer.AddRunsFromDirectory(str(tmp_path)).Reload()
    provider: Any = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))  # type: ignore[no-untyped-call]
    context: Any = backend_context.Context(base_plugin.TBContext(data_provider=provider))  # type: ignore[no-untyped-call]
    messages: Any = api_pb2
    request = messages.ListSessionGroupsRequest(start_index=0, slice_size=10, allowed_statuses=[0, 1, 2, 3])
    handler: Any = list_session_groups.Handler(RequestContext(), context, "", request)  # type: ignore[no-untyped-call]
    (row,) = handler.run().session_groups
    assert row.name == f"run-1/{behavior}"
    metrics = {value.name.tag: value.value for value in row.metric_values}
    assert metrics["Environment/Cumulative Reward"] == 7.0
    shown = {name: getattr(each, each.WhichOneof("kind") or "string_value") for name, each in row.hparams.items()}
    assert expected is None or shown == expected
    assert len(shown) == (3 if expected is None else len(expected))


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0], [1.0, 2.0, 2.5], [-1e308, 1e308]])
def test_histograms_of_any_values_are_readable(tmp_path: Path, values: list[float]) -> None:
    """Histograms of single, equal and overflowing values count all of them."""
    writer = TensorBoardWriter(tmp_path)
    stats = StatsReporter("A", [writer])
    stats.add_stats("key", np.array(values), Aggregation.HISTOGRAM)
    stats.write_stats(1)
    writer.close()
    tensor = read(tmp_path / "A").Tensors("Histograms/key")[0].tensor_proto
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
