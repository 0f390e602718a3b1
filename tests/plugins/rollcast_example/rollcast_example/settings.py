"""Settings in the run file; unknown keys are errors, as in Rollcast's own blocks."""

from __future__ import annotations

from pydantic import Field

from learner.settings.base import PositiveReal, PositiveWhole
from learner.settings.hyperparameters import APPOHyperparameters, PPOHyperparameters
from learner.settings.rewards import RewardSignalSettings


class CautiousHyperparameters(PPOHyperparameters):
    """PPO's, and one more."""

    caution: PositiveReal = Field(default=2.0, description="epsilon is divided by this")


class PatientHyperparameters(APPOHyperparameters):
    """APPO's, and one more. The traits of APPO come with them: actors collect while it trains."""

    patience: PositiveReal = Field(default=2.0, description="epsilon is multiplied by this")


class BrightnessSettings(RewardSignalSettings):
    """What every signal has, and one more."""

    full_scale: PositiveWhole = Field(default=255, description="what counts as white")
