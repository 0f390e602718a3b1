"""The input of reward signals: steps with the observations before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Transitions:
    """B steps from any source: an update buffer, replay memory, demonstrations.

    Attributes:
        reward: ``[B]`` float32, reward of the environment: the agent's own plus its group's.
        terminated: ``[B]`` float64, 1 where nothing follows.
        observations: ``[B, *shape]`` each, in the types of the ring; empty if no signal needs them.
        next_observations: ``[B, *shape]`` each, after the step; also empty if no signal needs them.
        continuous: ``[B, n]`` float32 raw draws; None without continuous actions.
        discrete: ``[B, b]`` int64 choices, each counted from 0; None without discrete actions.
    """

    reward: Tensor
    terminated: Tensor
    observations: Sequence[Tensor] = ()
    next_observations: Sequence[Tensor] = ()
    continuous: Tensor | None = None
    discrete: Tensor | None = None
