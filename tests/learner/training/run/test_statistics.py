"""Tests which videos of actors go to the writers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from learner.shared.observe.csvfile import CsvWriter
from learner.shared.observe.meters import RunMeters
from learner.training.run.statistics import LOOK_SECONDS, Statistics
from learner.training.trainers.parts import Ending
from tests.clock import Clock


class Keeping(CsvWriter):
    """A writer that notes the files it gets."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: list[tuple[str, str, str, int]] = []

    def write_artifact(self, category: str, kind: str, path: Path, step: int) -> None:
        """Notes it."""
        self.kept.append((category, kind, path.name, step))


def trainer(statistics: Statistics, name: str) -> Any:
    """Returns what the statistics read of a trainer."""
    settings = SimpleNamespace(model_dump=lambda **_: {})
    return SimpleNamespace(
        brain_name=name, get_step=7, stats_reporter=statistics.reporter(name), trainer_settings=settings
    )


def test_complete_videos_go_to_the_writers_once(tmp_path: Path) -> None:
    """New ones that are complete do, under the behavior in their names; older ones, and those that were cut, do not."""
    videos, clock = tmp_path / "videos", Clock()
    videos.mkdir()
    (videos / "Walker-episode-000001.mp4").write_bytes(b"of a run before")
    writer = Keeping(tmp_path)
    statistics = Statistics(RunMeters(), [writer], videos=videos, clock=clock)
    trainers = {name: trainer(statistics, name) for name in ("Walker", "Jumper")}
    for each in trainers.values():
        statistics.trainer_added(each)
    for name in (
        "Walker-episode-000001-2",
        "Walker-episode-000101-unfinished",
        ".Walker-episode-000102",
        "Other-episode-000001",
    ):
        (videos / f"{name}.mp4").write_bytes(b"video")
    (videos / "Walker-episode-000201.mp4").touch()
    statistics.after_turn(trainers)
    assert writer.kept == []
    clock.now += LOOK_SECONDS
    statistics.after_turn(trainers)
    first = ("Walker", "video", "Walker-episode-000001-2.mp4", 7)
    assert writer.kept == [first]
    (videos / "Walker-episode-000201.mp4").write_bytes(b"video")
    statistics.finish({}, Ending("signal"))
    assert writer.kept == [first, ("Walker", "video", "Walker-episode-000201.mp4", 7)]


def test_a_missing_folder_of_videos_is_none(tmp_path: Path) -> None:
    """Actors make it when they start."""
    clock, writer = Clock(), Keeping(tmp_path)
    statistics = Statistics(RunMeters(), [writer], videos=tmp_path / "later", clock=clock)
    only = trainer(statistics, "Walker")
    statistics.trainer_added(only)
    clock.now += LOOK_SECONDS
    statistics.after_turn({})
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "CartPole-episode-000001.mp4").write_bytes(b"video")
    clock.now += LOOK_SECONDS
    statistics.after_turn({})
    assert writer.kept == [("Walker", "video", "CartPole-episode-000001.mp4", 7)]
