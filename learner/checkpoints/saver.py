"""Writes the checkpoints of trainers: at each ``checkpoint_interval``, and at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import structlog

from learner.checkpoints.documents import CheckpointFailed
from learner.checkpoints.store import CheckpointStore
from learner.settings.trainer import TrainerSettings

log = structlog.get_logger(__name__)


class Savable(Protocol):
    """What of a trainer is needed to save it."""

    @property
    def brain_name(self) -> str:
        """The behavior's name."""

    @property
    def trainer_settings(self) -> TrainerSettings:
        """The behavior's block of the run file."""

    @property
    def get_step(self) -> int:
        """Steps so far."""

    def mean_return(self) -> float | None:
        """Returns the mean episode return; None before the first episode."""

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that training depends on."""

    def export_model(self, path: Path) -> None:
        """Writes the model that Unity loads."""


class CheckpointSaver:
    """Saves trainers into a run's folder. A disk that is full costs a checkpoint and a warning, never the run.

    Args:
        store: the checkpoints of the run.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._saved_steps: dict[str, int] = {}

    @property
    def saved_steps(self) -> Mapping[str, int]:
        """The step of the newest checkpoint of each behavior that this process wrote."""
        return self._saved_steps

    def save(self, trainer: Savable) -> None:
        """Writes a checkpoint of a trainer as it is now, and its model."""
        name, step = trainer.brain_name, trainer.get_step
        try:
            self._store.save_behavior(
                name,
                step=step,
                state=trainer.state_dict(),
                reward=trainer.mean_return(),
                keep_checkpoints=trainer.trainer_settings.keep_checkpoints,
                export=trainer.export_model,
            )
        except CheckpointFailed as error:
            log.warning("the checkpoint was not written; training goes on", behavior=name, reason=str(error))
            return
        self._saved_steps[name] = step

    def finish(self, trainer: Savable) -> Path | None:
        """Writes the last checkpoint, unless this step has one, and copies its model to ``<Behavior>.onnx``.

        Returns:
            The copy; None if there is no model or it cannot be written.
        """
        name = trainer.brain_name
        if self._saved_steps.get(name) != trainer.get_step:
            self.save(trainer)
        try:
            return self._store.finish_behavior(name)
        except CheckpointFailed as error:
            log.warning("the final model was not written", behavior=name, reason=str(error))
            return None
