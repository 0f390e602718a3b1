"""Tests the files of a training from its first checkpoint to its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from rollcast.specs import BehaviorSpec

from learner.link.channel import Link
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.snapshots import snapshot
from learner.shared.observe.meters import CheckpointMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.runfolder.runfolder import RunFolder, open_run_folder
from learner.shared.runfolder.store import CheckpointStore
from learner.shared.settings.options import RunOptions
from learner.training.curriculum.lessons import no_lessons
from learner.training.run.checkpointing import CheckpointKeeper
from learner.training.trainers.base import Trainer
from learner.training.trainers.memory_estimate import estimate_memory
from learner.training.trainers.parts import Ending
from learner.training.trainers.ppo.trainer import PPOTrainer
from tests.learner.training.export.unity_behaviors import TRAINED
from tests.learner.training.trainers.in_process import Bench
from tests.learner.training.trainers.synthetic import SyntheticActor

SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 16, "buffer_size": 60, "num_epoch": 1},
    "network_settings": {"hidden_units": 8},
    "time_horizon": 20,
    "max_steps": 1000,
    "checkpoint_interval": 100,
    "keep_checkpoints": 2,
    "summary_freq": 1000,
}


class Run:
    """A run without its service: one start, some behaviors.

    Args:
        folder: Of the run.
        specs: The behaviors that actors declare.
        kind: Of the trainers.
    """

    def __init__(self, folder: RunFolder, *specs: BehaviorSpec, kind: type[PPOTrainer] = PPOTrainer) -> None:
        options = RunOptions.model_validate({"default_settings": SETTINGS})
        ledger, link = Ledger(), Link()
        table = BehaviorTable(options, ledger, estimate_memory, link.to_trainers.send)
        sessions = SessionTable(table, ledger, generation=1)
        self.keeper = CheckpointKeeper(
            CheckpointStore(folder, wall_clock=lambda: 1234.5),
            cut=lambda: {**snapshot(table, sessions, ledger), "status": {}},
            generation=1,
            checkpoint_seconds=60.0,
            extra={},
            metrics=CheckpointMeters(),
            lessons=no_lessons(),
        )
        self._actors: dict[str, tuple[Bench, SyntheticActor]] = {}
        self.trainers: dict[str, Trainer] = {}
        for spec in specs:
            bench = Bench(link, table, table.declare(spec, 0, 1), ledger, StatsReporter(spec.name))
            trainer = kind(bench.context(saver=self.keeper))
            self.keeper.trainer_added(trainer)
            trainer.start()
            self._actors[spec.name] = bench, SyntheticActor(bench)
            self.trainers[spec.name] = trainer

    def step(self, name: str, *returns: float, chunks: int = 1) -> None:
        """Sends chunks of 20 steps of a behavior, each with episodes of these returns."""
        bench, actor = self._actors[name]
        columns = {
            "episode/return": np.array(returns, np.float32),
            "episode/length": np.full(len(returns), 9, np.uint32),
        }
        for _ in range(chunks):
            bench.put(actor.chunk([12, 8], episodes=len(returns), columns=columns if returns else {}))
            self.trainers[name].advance()


def listed(folder: Path) -> set[str]:
    """Returns every file below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def status_of(folder: RunFolder) -> dict[str, Any]:
    """Returns the list of checkpoints on the disk."""
    document: dict[str, Any] = json.loads(folder.training_status.read_text(encoding="utf-8"))
    return document


def test_files_and_list_from_the_first_checkpoint_to_the_end(tmp_path: Path) -> None:
    """Files have ML-Agents' names; the list is written with each checkpoint and keeps the newest."""
    spec = TRAINED["continuous"]
    with open_run_folder(tmp_path / "results", "run") as folder:
        run = Run(folder, spec)
        run.step(spec.name, 3.0, 5.0, chunks=5)
        folder_of = f"{folder.path}/My Behavior"
        assert status_of(folder)["My Behavior"] == {
            "checkpoints": [
                {
                    "steps": 100,
                    "file_path": f"{folder_of}/My Behavior-100.onnx",
                    "reward": 4.0,
                    "creation_time": 1234.5,
                    "auxillary_file_paths": [f"{folder_of}/My Behavior-100.pt"],
                }
            ]
        }
        run.step(spec.name, chunks=12)
        run.keeper.finish(run.trainers, Ending("signal"))
        assert listed(folder.path) == {
            "run_state.pt",
            "run_logs/training_status.json",
            "My Behavior.onnx",
            "My Behavior/checkpoint.pt",
            *(f"My Behavior/My Behavior-{step}{suffix}" for step in (300, 340) for suffix in (".onnx", ".pt")),
        }
        status = status_of(folder)
    assert set(status) == {"My Behavior", "metadata"}
    assert set(status["metadata"]) == {"stats_format_version", "mlagents_version", "torch_version"}
    assert status["metadata"]["stats_format_version"] == "0.3.0"
    assert [entry["steps"] for entry in status["My Behavior"]["checkpoints"]] == [300, 340]
    final = status["My Behavior"]["final_checkpoint"]
    assert (final["steps"], final["file_path"]) == (340, f"{folder.path}/My Behavior.onnx")
    assert final["auxillary_file_paths"] == [f"{folder_of}/My Behavior-340.pt"]
    newest = folder.path / "My Behavior" / "checkpoint.pt"
    assert newest.read_bytes() == newest.with_name("My Behavior-340.pt").read_bytes()
    model = folder.path / "My Behavior.onnx"
    assert model.read_bytes() == (folder.path / "My Behavior" / "My Behavior-340.onnx").read_bytes()


def test_the_reward_of_a_checkpoint_is_that_since_the_update(tmp_path: Path) -> None:
    """The reward of a checkpoint is that since the update, or null before the first episode."""
    spec = TRAINED["continuous"]
    with open_run_folder(tmp_path, "run") as folder:
        run = Run(folder, spec)
        trainer = run.trainers[spec.name]

        def reward() -> object:
            run.keeper.save_behavior(trainer)
            return status_of(folder)[spec.name]["checkpoints"][-1]["reward"]

        assert reward() is None
        run.step(spec.name, 2.0, chunks=2)
        run.step(spec.name, 8.0)
        assert reward() == 4.0
        run.step(spec.name)
        assert trainer.version == 1
        assert reward() == 4.0
        run.step(spec.name, 10.0)
        assert reward() == 10.0


def test_behaviors_share_a_run(tmp_path: Path) -> None:
    """Each behavior has its folder, model and part of the list, whatever its name."""
    specs = [TRAINED["continuous"], TRAINED["hybrid"]]
    with open_run_folder(tmp_path, "run") as folder:
        run = Run(folder, *specs)
        for spec in specs:
            run.step(spec.name, 1.0, chunks=4)
        assert run.keeper.finish(run.trainers, Ending("signal"))
        assert run.keeper.models == {spec.name: folder.path / f"{spec.name}.onnx" for spec in specs}
        assert set(status_of(folder)) == {*(spec.name for spec in specs), "metadata"}
        for spec in specs:
            assert (folder.path / spec.name / f"{spec.name}-80.pt").is_file()


def test_a_model_that_cannot_be_written_never_ends_a_training(tmp_path: Path) -> None:
    """A model that cannot be written costs only that checkpoint."""
    spec = TRAINED["continuous"]
    with open_run_folder(tmp_path, "run") as folder, structlog.testing.capture_logs() as logs:
        run = Run(folder, spec)
        (folder.checkpoint(spec.name, 100, ".onnx") / "in the way").mkdir(parents=True)
        run.step(spec.name, chunks=12)
        assert run.trainers[spec.name].version == 4
        assert [entry["steps"] for entry in status_of(folder)[spec.name]["checkpoints"]] == [200]
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["checkpoint_failed"]
