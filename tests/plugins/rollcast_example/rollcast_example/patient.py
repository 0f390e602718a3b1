"""Two trainers: PPO that trusts its samples less than its settings say, and APPO that trusts them more."""

from __future__ import annotations

from learner.trainers.appo.trainer import APPOTrainer
from learner.trainers.base import TrainerContext
from learner.trainers.ppo.trainer import PPOTrainer

from .settings import CautiousHyperparameters, PatientHyperparameters


class CautiousTrainer(PPOTrainer):
    """PPO whose clipping range is divided by ``caution``.

    Args:
        context: everything from outside.
    """

    def __init__(self, context: TrainerContext) -> None:
        self._caution = self._own_hyperparameters(context, CautiousHyperparameters).caution
        super().__init__(context)

    def _epsilon_at(self, step: int) -> float:
        return super()._epsilon_at(step) / self._caution


class PatientTrainer(APPOTrainer):
    """APPO whose clipping range is multiplied by ``patience``.

    Args:
        context: everything from outside.
    """

    def __init__(self, context: TrainerContext) -> None:
        self._patience = self._own_hyperparameters(context, PatientHyperparameters).patience
        super().__init__(context)

    def _epsilon_at(self, step: int) -> float:
        return super()._epsilon_at(step) * self._patience
