"""The environment's own reward."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from learner.rewards.transitions import Transitions

EXTRINSIC = "extrinsic"


@dataclass(frozen=True, slots=True)
class ExtrinsicReward:
    """The environment's reward (the agent's own plus its group's), times a strength.

    Attributes:
        gamma: the discount.
        strength: the factor.
        name: as in the run file.
        ignores_ends: False: nothing is to be had behind a terminal state.
        needs_observations: False.
    """

    gamma: float
    strength: float
    name: str = EXTRINSIC
    ignores_ends: bool = False
    needs_observations: bool = False

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]`` float64."""
        return transitions.reward.double() * self.strength
