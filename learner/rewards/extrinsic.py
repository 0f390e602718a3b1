"""The environment's own reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ExtrinsicReward:
    """The environment's reward (the agent's own plus its group's), times a strength.

    Attributes:
        gamma: the discount.
        strength: the factor.
        name: as in the run file.
        ignores_ends: False: nothing is to be had behind a terminal state.
    """

    gamma: float
    strength: float
    name: str = "extrinsic"
    ignores_ends: bool = False

    def evaluate(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Computes rewards ``[R]`` float64 from the column ``reward``."""
        return rows["reward"].double() * self.strength
