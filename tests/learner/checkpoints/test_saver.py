"""Trainers into files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.checkpoints.runfolder import open_run_folder
from learner.checkpoints.saver import CheckpointSaver
from learner.checkpoints.store import CheckpointStore
from learner.networks.policy import PolicyNetwork
from learner.publish.unity import export_unity
from learner.settings.network import NetworkSettings
from learner.settings.trainer import TrainerSettings


class SmallTrainer:
    """A network, and what of a trainer is needed to save it."""

    brain_name = "Walker"
    trainer_settings = TrainerSettings(keep_checkpoints=2)

    def __init__(self, floats: int = 1) -> None:
        spec = BehaviorSpec("Walker", (ObservationSpec("vector", np.dtype("float32"), (3,)),), ActionSpec(2))
        self.policy = PolicyNetwork(spec, NetworkSettings(hidden_units=8))
        self.get_step = 0
        self.padding = torch.zeros(floats)

    def mean_return(self) -> float | None:
        """Returns nothing, as before the first episode."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights."""
        return {"steps": self.get_step, "policy": self.policy.state_dict(), "padding": self.padding}

    def export_model(self, path: Path) -> None:
        """Writes the model."""
        export_unity(self.policy, path)


def test_a_trainer_is_saved_with_its_model(tmp_path: Path) -> None:
    """Each save leaves weights and a model of the step; the end copies the newest model, without saving it twice."""
    trainer = SmallTrainer()
    with open_run_folder(tmp_path, "run") as folder:
        saver = CheckpointSaver(CheckpointStore(folder))
        for step in (100, 200, 300):
            trainer.get_step = step
            saver.save(trainer)
        assert saver.saved_steps == {"Walker": 300}
        saved_at = folder.checkpoint("Walker", 300, ".pt").stat().st_mtime_ns
        assert saver.finish(trainer) == tmp_path / "run" / "Walker.onnx"
        assert folder.checkpoint("Walker", 300, ".pt").stat().st_mtime_ns == saved_at
        assert not folder.checkpoint("Walker", 100, ".pt").exists()
        assert folder.final_model("Walker").read_bytes() == folder.checkpoint("Walker", 300, ".onnx").read_bytes()


def test_the_end_saves_what_came_after_the_last_checkpoint(tmp_path: Path) -> None:
    """A run that ends between two checkpoints loses nothing."""
    trainer = SmallTrainer()
    with open_run_folder(tmp_path, "run") as folder:
        store = CheckpointStore(folder)
        saver = CheckpointSaver(store)
        saver.save(trainer)
        trainer.get_step = 7
        saver.finish(trainer)
        assert [entry.steps for entry in store.status.checkpoints("Walker")] == [0, 7]


def test_a_full_disk_does_not_end_the_run(small_disk: Path) -> None:
    """The checkpoint is missing, a warning says why, and the next one is written when there is room."""
    with open_run_folder(small_disk, "run") as folder:
        saver = CheckpointSaver(CheckpointStore(folder))
        with structlog.testing.capture_logs() as logs:
            saver.save(SmallTrainer(floats=100_000))
            assert saver.finish(SmallTrainer(floats=100_000)) is None
        assert {entry["log_level"] for entry in logs} == {"warning"}
        assert saver.saved_steps == {}
        assert saver.finish(SmallTrainer()) is not None
