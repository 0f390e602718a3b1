"""Tests the statistics writers of a run file."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rollcast import extras
from structlog.testing import capture_logs

from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.csvfile import STATS_FILE, CsvWriter
from learner.shared.observe.stats import Aggregation, StatsReporter
from learner.training.run.writers import ENTRY_POINTS, WriterContext, close_writers, open_writers
from learner.training.writers.mlflow import MlflowWriter
from learner.training.writers.tensorboard import TensorBoardWriter
from learner.training.writers.wandb import WandbWriter
from tests.learner.installed import install
from tests.wandb_server import tracker_running

MODULE = """
    class Own:
        def __init__(self, context):
            self.path = context.run_folder / "own.txt"

        def write(self, category, summaries, step):
            with self.path.open("a") as file:
                file.writelines(f"{category} {step} {key} {one.value}\\n" for key, one in summaries.items())

        def write_text(self, category, title, text, step):
            pass

        def restart(self, category, step):
            raise ValueError("not today")

        def close(self):
            raise RuntimeError("nor this")

    def half(context):
        return object()
"""


def context(folder: Path, *, is_resumed: bool = False) -> WriterContext:
    """Returns the context of a run in a folder."""
    return WriterContext(folder, "run", is_resumed, {"behaviors": {"Walker": {"max_steps": 5}}})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns a distribution with a writer."""
    points = {"own": "writers_of_a_test:Own", "half": "writers_of_a_test:half"}
    site = install(tmp_path / "site", "writers_of_a_test", MODULE, {ENTRY_POINTS: points})
    monkeypatch.syspath_prepend(str(site))


def test_names_of_ours(tmp_path: Path) -> None:
    """Each built-in name makes one writer with the folders of checkpoints."""
    writers = open_writers(["csv", "tensorboard", "csv"], context(tmp_path))
    assert [type(writer) for writer in writers] == [CsvWriter, TensorBoardWriter]
    stats = StatsReporter("generation", writers)  # a name that the run folder needs for itself
    stats.add_stat("a", 1)
    stats.write_stats(1)
    close_writers(writers)
    assert len(list(tmp_path.glob(f"generation-????????/{STATS_FILE}"))) == 1
    assert open_writers([], context(tmp_path)) == []


@pytest.mark.usefixtures("installed")
def test_a_writer_of_an_installed_package(tmp_path: Path) -> None:
    """A package's writer gets the same calls, and its errors are logged."""
    writers = open_writers(["own", "csv"], context(tmp_path))
    stats = StatsReporter("Walker", writers)
    with capture_logs() as logs:
        stats.restart(0)
        stats.add_stat("a", 1)
        stats.write_stats(500)
        close_writers(writers)
    assert (tmp_path / "own.txt").read_text() == "Walker 500 a 1.0\n"
    assert (tmp_path / "Walker" / STATS_FILE).exists()
    assert [line["event"] for line in logs] == ["stats_not_written", "stats_written_again", "stats_not_closed"]
    assert logs[0]["error"] == "ValueError: not today"


@pytest.mark.usefixtures("installed")
def test_what_is_no_writer_is_refused(tmp_path: Path) -> None:
    """An object that is no writer is refused with the missing method."""
    with pytest.raises(UserError, match="lacks write, write_text, restart, close"):
        open_writers(["half"], context(tmp_path))


def test_wandb_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing wandb is one line with an exit code that says what to install."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=re.escape(extras.install("wandb"))) as caught:
        open_writers(["wandb"], context(tmp_path))
    assert caught.value.exit_code is ExitCode.MISSING_EXTRA


OFFLINE = """
import sys
from pathlib import Path
import numpy as np
from learner.shared.observe.stats import Aggregation, StatsReporter
from learner.training.run.writers import WriterContext, close_writers, open_writers
folder, resumed = Path(sys.argv[1]), sys.argv[2] == "resumed"
writers = open_writers(["wandb"], WriterContext(folder, "my-run", resumed, {"seed": 3}))
stats = StatsReporter("Walker", writers)
if resumed:
    stats.restart(500)
for kind, name in (("settings", "configuration.yaml"), ("model", "Walker-1000.onnx"), ("video", "a.mp4"), ("game", "game-1.pgn")):
    (folder / name).write_text(kind)
    stats.write_artifact(kind, folder / name, 1000)
    (folder / name).unlink()  # as old checkpoints are
stats.write_text("Hyperparameters", "| a | b |")
stats.add_stats("Environment/Cumulative Reward", np.array([1.0, 3.0]), Aggregation.HISTOGRAM)
stats.write_stats(1000)
close_writers(writers)
"""


@pytest.mark.slow
def test_wandb_offline_keeps_a_run_that_is_synced_later(tmp_path: Path) -> None:
    """Offline, W&B's files in the run folder have the values, a resume keeps the id, and a sync sends curves and artifacts."""
    environment = {**os.environ, "WANDB_MODE": "offline", "HOME": str(tmp_path)}
    ids = []
    for word in ("fresh", "resumed"):
        done = subprocess.run(
            [sys.executable, "-c", OFFLINE, str(tmp_path), word],
            env=environment, capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        ids.append((tmp_path / "wandb_id").read_text())
    assert ids[0] == ids[1]
    files = sorted(tmp_path.glob(f"wandb/offline-run-*/run-{ids[0]}.wandb"))
    assert files
    content = files[0].read_bytes()
    for text in (b"Walker/Environment/Cumulative Reward", b"Walker/step", b"my-run", b"rollcast"):
        assert text in content
    with tracker_running() as server:
        command = [str(Path(sys.executable).with_name("wandb")), "sync", str(files[0].parent)]
        environment |= {**server.environment, "WANDB_MODE": "online"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False
        )
    assert done.returncode == 0, done.stderr
    assert server.runs == {ids[0]: "my-run"}
    (row,) = (row for row in server.history if "Walker/Environment/Cumulative Reward" in row)
    assert (row["Walker/step"], row["Walker/Environment/Cumulative Reward"]) == (1000, 2.0)
    assert server.artifacts == {
        "my-run-Walker-settings": [{"configuration.yaml": b"settings"}],
        "my-run-Walker-model": [{"Walker-1000.onnx": b"model"}],
        "my-run-Walker-video": [{"a.mp4": b"video"}],
        "my-run-Walker-game": [{"game-1.pgn": b"game"}],
    }
    assert [data for name, data in server.files.items() if name.startswith("media/videos/Walker/")] == [b"video"]


MLFLOW = OFFLINE.replace('"wandb"', '"mlflow"')
"""The same run for another tracker."""


@pytest.mark.slow
def test_mlflow_keeps_a_run_in_the_run_folder(tmp_path: Path) -> None:
    """Without a server, the run folder has metrics, parameters and files of one run, which a resume continues."""
    for word in ("fresh", "resumed"):
        done = subprocess.run(
            [sys.executable, "-c", MLFLOW, str(tmp_path), word],
            env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    number = (tmp_path / "mlflow_id").read_text()
    (run,) = tmp_path.glob(f"mlruns/*/{number}")
    found = {path.relative_to(run).as_posix(): path.read_text() for path in run.rglob("*") if path.is_file()}
    values = [line.split()[1:] for line in found["metrics/Walker/Environment/Cumulative Reward"].splitlines()]
    assert values == [["2.0", "1000"], ["2.0", "1000"]]
    assert (found["params/seed"], found["tags/Walker/resumed_from_step"]) == ("3", "500")
    assert found["artifacts/Walker/Hyperparameters.md"] == "| a | b |"
    assert {
        path: text for path, text in found.items() if path.startswith("artifacts/") and not path.endswith(".md")
    } == {
        "artifacts/Walker/settings/configuration.yaml": "settings",
        "artifacts/Walker/model/Walker-1000.onnx": "model",
        "artifacts/Walker/video/a.mp4": "video",
        "artifacts/Walker/game/game-1.pgn": "game",
    }


def test_mlflow_that_cannot_be_reached_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer ends the start with one line, and soon."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(
        UserError, match=r"MLflow cannot be started: .*; set MLFLOW_TRACKING_URI to a server that answers"
    ):
        MlflowWriter(tmp_path, "run", {}, is_resumed=False)


@pytest.mark.parametrize("name", ["../../a", "/a", "a/../b", "..", "a\x00b?"])
def test_no_name_leaves_the_folder_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Keys come from environments, too; whatever they are called, they stay among the run's."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    writer = MlflowWriter(tmp_path / "run", "run", {}, is_resumed=False)
    stats = StatsReporter(name, [writer])
    stats.add_stat(name, 1.0)
    with capture_logs() as logs:
        stats.write_stats(1)
        stats.write_text(name, "text")
    writer.close()
    assert logs == []
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_files_go_to_the_writers_that_keep_files(tmp_path: Path) -> None:
    """A writer without the method gets none, and counts neither as failing nor as well again."""
    kept: list[object] = []

    class Keeping(CsvWriter):
        def write_artifact(self, category: str, kind: str, path: Path, step: int) -> None:
            kept.append((category, kind, path, step))

    writers = [CsvWriter(tmp_path / "none" / "\0"), Keeping(tmp_path)]
    stats = StatsReporter("Walker", writers)
    stats.add_stat("a", 1.0)
    with capture_logs() as logs:
        stats.write_stats(1)
        stats.write_artifact("model", tmp_path / "model.onnx", 7)
        close_writers(writers)
    assert [log["event"] for log in logs] == ["stats_not_written"]
    assert kept == [("Walker", "model", tmp_path / "model.onnx", 7)]


def test_a_run_begun_anew_is_another_one_to_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a resumed run keeps its W&B id; a given one goes before both."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    ids = []
    for is_resumed in (False, True, False):
        WandbWriter(tmp_path, "run", {}, is_resumed=is_resumed).close()
        ids.append((tmp_path / "wandb_id").read_text())
    assert ids[0] == ids[1] != ids[2]
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    WandbWriter(tmp_path, "run", {}, is_resumed=True).close()
    assert (tmp_path / "wandb_id").read_text() == "mine"


def test_wandb_that_cannot_be_reached_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If W&B cannot be reached, the start ends with one line."""
    import wandb

    def refuse(**_settings: object) -> None:
        raise wandb.Error("no API key\nconfigured")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError, match="no API key configured; run 'wandb login', set WANDB_MODE=offline"):
        WandbWriter(tmp_path, "run", {}, is_resumed=False)


def test_numbers_only_wandb_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histograms of any values are accepted by W&B."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    writer = WandbWriter(tmp_path, "run", {}, is_resumed=False)
    stats = StatsReporter("Walker", [writer])
    with capture_logs() as logs:
        for values in ([3.0], [1e308, -1e308], [float("nan")]):
            stats.add_stats("key", np.array(values), Aggregation.HISTOGRAM)
            stats.write_stats(1)
    writer.close()
    assert logs == []


class Leaving(CsvWriter):
    """A writer that tries to end the process."""

    def write(self, category: str, summaries: object, step: int) -> None:
        """Exits."""
        raise SystemExit(category, summaries, step)

    def close(self) -> None:
        """Exits."""
        raise KeyboardInterrupt


def test_a_writer_that_leaves_ends_nothing(tmp_path: Path) -> None:
    """sys.exit and KeyboardInterrupt in a writer are logged, and the run continues."""
    writers = [Leaving(tmp_path), CsvWriter(tmp_path)]
    reporter = StatsReporter("CartPole", writers)
    reporter.add_stat("Losses/Value Loss", 1.0)
    with capture_logs() as logs:
        reporter.write_stats(1)
        close_writers(writers)
    assert [entry["event"] for entry in logs] == ["stats_not_written", "stats_not_closed"]
    assert (tmp_path / "CartPole" / STATS_FILE).exists()
