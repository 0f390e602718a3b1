"""A reward signal: pictures should become bright."""

from __future__ import annotations

from typing import TYPE_CHECKING

from learner.settings.base import PositiveWhole
from learner.settings.rewards import RewardSignalSettings

if TYPE_CHECKING:
    from torch import Tensor

    from learner.rewards.learned import SignalSetup
    from learner.rewards.transitions import Transitions


class BrightnessSettings(RewardSignalSettings):
    """What every signal has, and one more."""

    full_scale: PositiveWhole = 255
    """what counts as white"""


class Brightness:
    """How bright the picture after a step is, from 0 to 1.

    Args:
        settings: of the run file.
        setup: what the behavior sees, and where things are.
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
