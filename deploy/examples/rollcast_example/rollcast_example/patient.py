"""A trainer that extends APPO by a larger clipping range."""

from __future__ import annotations

from pydantic import Field

from learner.shared.settings.base import PositiveReal
from learner.shared.settings.hyperparameters import APPOHyperparameters
from learner.training.trainers.appo.trainer import APPOTrainer
from learner.training.trainers.base import TrainerContext


class PatientHyperparameters(APPOHyperparameters):
    """Hyperparameters and traits of APPO, and one more hyperparameter."""

    patience: PositiveReal = Field(default=2.0, description="epsilon is multiplied by this")


class PatientTrainer(APPOTrainer):
    """APPO whose clipping range is multiplied by ``patience``.

    Args:
        context: Settings, spec and services of the run.
    """

    settings_model = PatientHyperparameters

    def __init__(self, context: TrainerContext) -> None:
        self._patience = self.own_hyperparameters(context, PatientHyperparameters).patience
        super().__init__(context)

    def epsilon_at(self, step: int) -> float:
        """Returns the clipping range."""
        return super().epsilon_at(step) * self._patience
