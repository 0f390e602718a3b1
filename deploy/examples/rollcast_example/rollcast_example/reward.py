"""A reward signal: the brightness of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from learner.shared.settings.base import PositiveWhole
from learner.shared.settings.rewards import RewardSignalSettings

if TYPE_CHECKING:
    from torch import Tensor

    from learner.training.rewards.learned import SignalSetup
    from learner.training.rewards.transitions import Transitions


class BrightnessSettings(RewardSignalSettings):
    """Settings of every signal, and one more."""

    full_scale: PositiveWhole = 255
    """the value of white"""


class Brightness:
    """Rewards the brightness of the image after a step, from 0 to 1.

    Args:
        settings: The signal's block in the run file.
        setup: The behavior's spec and the device.
    """

    settings_model = BrightnessSettings

    name = "brightness"
    ignores_ends = False
    needs_observations = True

    def __init__(self, settings: BrightnessSettings, setup: SignalSetup) -> None:
        self.gamma = settings.gamma
        self._factor = settings.strength / settings.full_scale

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        return transitions.next_observations[0].double().flatten(1).mean(1) * self._factor
