"""A reward signal: pictures shall become bright."""

from __future__ import annotations

from torch import Tensor

from learner.rewards.learned import SignalSetup
from learner.rewards.transitions import Transitions

from .settings import BrightnessSettings


class Brightness:
    """How bright the picture after a step is, from 0 to 1.

    Args:
        settings: of the run file.
        setup: what the behavior sees, and where things are.
    """

    name = "brightness"
    ignores_ends = False
    needs_observations = True

    def __init__(self, settings: BrightnessSettings, setup: SignalSetup) -> None:
        self.gamma = settings.gamma
        self._factor = settings.strength / settings.full_scale

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        rewards: Tensor = transitions.next_observations[0].double().flatten(1).mean(1) * self._factor
        return rewards
