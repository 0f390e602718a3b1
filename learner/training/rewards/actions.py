"""Encodes recorded actions for the networks of reward signals."""

from __future__ import annotations

import torch
from rollcast.enums import Squash
from rollcast.specs import ActionSpec
from rollcast.transforms import CLIP
from torch import Tensor


class ActionNumbers:
    """Encodes actions for a network: continuous axes, then each branch as a one-hot block.

    Args:
        spec: Actions of the behavior.
        squash: How actors squash a draw before they map it onto the bounds.
        device: Device of the actions.

    Attributes:
        size: Width of an encoded action.
    """

    def __init__(self, spec: ActionSpec, squash: Squash, device: torch.device | str = "cpu") -> None:
        self.size = spec.continuous_size + sum(spec.discrete_branches)
        bounds = torch.tensor([spec.continuous_low, spec.continuous_high], dtype=torch.float64, device=device)
        self._bounded = bounds.isfinite().all(0) if spec.continuous_low else None
        self._squash = squash
        self._branches = spec.discrete_branches
        codes = [torch.arange(size, device=device) for size in self._branches]
        columns = [torch.full((size,), branch, device=device) for branch, size in enumerate(self._branches)]
        self._codes = torch.cat(codes) if codes else None
        self._columns = torch.cat(columns) if columns else None

    def told_apart(self, draws: Tensor) -> Tensor:
        """Returns draws ``[B, n]`` in their own units, without differences that the environment does not see.

        Two draws beyond the clip are the same action: a model of the environment must not have to distinguish them. An
        axis with an infinite bound is unchanged; see `rollcast.transforms.ActionTransform`.
        """
        if self._squash is Squash.CLIP3_DIV3:
            cut = draws.clamp(-CLIP, CLIP)
        else:
            cut = torch.tanh(draws) if self._squash is Squash.TANH else draws
        return cut if self._bounded is None else torch.where(self._bounded, cut, draws)

    def of(self, continuous: Tensor | None, discrete: Tensor | None) -> Tensor:
        """Encodes draws ``[B, n]`` and choices ``[B, b]`` (each from 0) to ``[B, size]`` float32."""
        parts = [] if continuous is None else [self.told_apart(continuous)]
        if discrete is not None:
            parts.append(self.one_hot(discrete))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def one_hot(self, discrete: Tensor) -> Tensor:
        """Encodes choices ``[B, b]`` as ``[B, sum(branches)]``; a choice that does not exist is a block of zeros."""
        if self._codes is None or self._columns is None:
            raise ValueError("the behavior has no discrete branches")
        return (discrete.index_select(1, self._columns) == self._codes).to(torch.float32)
