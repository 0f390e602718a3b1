"""A trainer: PPO that trusts its samples less than its settings say."""

from __future__ import annotations

from typing import Any

from learner.trainers.context import TrainerContext
from learner.trainers.ppo.trainer import PPOTrainer

from .settings import CautiousHyperparameters


class CautiousTrainer(PPOTrainer):
    """PPO whose clipping range is divided by ``caution``.

    Args:
        context: everything from outside.
    """

    def __init__(self, context: TrainerContext) -> None:
        hyperparameters: Any = context.behavior.settings.hyperparameters
        if not isinstance(hyperparameters, CautiousHyperparameters):
            raise TypeError(f"hyperparameters are {type(hyperparameters).__name__}")
        self._caution = hyperparameters.caution
        super().__init__(context)

    def _epsilon_at(self, step: int) -> float:
        return super()._epsilon_at(step) / self._caution
