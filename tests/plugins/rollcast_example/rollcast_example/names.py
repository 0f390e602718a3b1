"""What the entry points of trainers and of the reward signal name.

They carry their settings, and import torch only when they are called: `rollcast-learner check-config` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .settings import BrightnessSettings, CautiousHyperparameters, PatientHyperparameters

if TYPE_CHECKING:
    from learner.rewards.learned import SignalSetup
    from learner.trainers.base import TrainerContext

    from .reward import Brightness
    from .trainer import CautiousTrainer, PatientTrainer


class _CautiousName:
    """``trainer_type: cautious``."""

    settings_model = CautiousHyperparameters

    def __call__(self, context: TrainerContext) -> CautiousTrainer:
        """Makes the trainer of a behavior."""
        from .trainer import CautiousTrainer

        return CautiousTrainer(context)


class _PatientName:
    """``trainer_type: patient``."""

    settings_model = PatientHyperparameters

    def __call__(self, context: TrainerContext) -> PatientTrainer:
        """Makes the trainer of a behavior."""
        from .trainer import PatientTrainer

        return PatientTrainer(context)


class _BrightnessName:
    """``reward_signals: {brightness: {}}``."""

    settings_model = BrightnessSettings

    def __call__(self, settings: BrightnessSettings, setup: SignalSetup) -> Brightness:
        """Makes the signal of a behavior."""
        from .reward import Brightness

        return Brightness(settings, setup)


cautious = _CautiousName()
patient = _PatientName()
brightness = _BrightnessName()
