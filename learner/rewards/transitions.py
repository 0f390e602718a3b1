"""What reward signals look at: steps with what was seen before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Transitions:
    """B steps, wherever they come from: an update buffer, replay memory, demonstrations.

    Attributes:
        reward: ``[B]`` float32, of the environment: the agent's own plus its group's.
        terminated: ``[B]`` float64, 1 where nothing follows.
        observations: ``[B, *shape]`` each, in the types of the ring; empty if no signal needs them.
        next_observations: the same, after the step.
        continuous: ``[B, n]`` float32 raw draws, or None.
        discrete: ``[B, b]`` int64 choices, each counted from 0, or None.
    """

    reward: Tensor
    terminated: Tensor
    observations: Sequence[Tensor] = ()
    next_observations: Sequence[Tensor] = ()
    continuous: Tensor | None = None
    discrete: Tensor | None = None
