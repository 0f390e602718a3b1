"""Recorded draws as the environment takes them: `rollcast.transforms` in torch."""

from __future__ import annotations

import torch
from rollcast.enums import Squash
from rollcast.specs import ActionSpec
from torch import Tensor

_CLIP = 3.0
"""What CLIP3_DIV3 cuts a draw to."""


class ContinuousActions:
    """The continuous part of a behavior's actions.

    Args:
        spec: what the behavior does.
        squash: what actors do to a draw before they map it onto the bounds.
        device: where draws are.
    """

    def __init__(self, spec: ActionSpec, squash: Squash, device: torch.device | str = "cpu") -> None:
        size = spec.continuous_size
        low = torch.tensor(spec.continuous_low or [-1.0] * size, dtype=torch.float64)
        high = torch.tensor(spec.continuous_high or [1.0] * size, dtype=torch.float64)
        bounded = low.isfinite() & high.isfinite()
        low, high = torch.where(bounded, low, -1.0), torch.where(bounded, high, 1.0)
        self._squash = squash
        self._is_mapped = bool(spec.continuous_low)
        self._bounded = bounded.to(device)
        self._low, self._high = low.float().to(device), high.float().to(device)
        # Halves before the difference: high - low may pass the largest float32.
        self._half = (high / 2 - low / 2).float().to(device)
        self._middle = (high / 2 + low / 2).float().to(device)

    def taken(self, draws: Tensor) -> Tensor:
        """Returns what the environment takes of draws ``[B, n]``: squashed, then mapped onto the bounds.

        An axis with an infinite bound passes as it is; see `rollcast.transforms.ActionTransform`.
        """
        if self._squash is Squash.CLIP3_DIV3:
            squashed = draws.clamp(-_CLIP, _CLIP) / _CLIP
        else:
            squashed = torch.tanh(draws) if self._squash is Squash.TANH else draws
        if not self._is_mapped:
            return squashed
        mapped = squashed * self._half + self._middle
        if self._squash is not Squash.NONE:
            mapped = torch.minimum(torch.maximum(mapped, self._low), self._high)
        return torch.where(self._bounded, mapped, draws)

    def told_apart(self, draws: Tensor) -> Tensor:
        """Returns draws ``[B, n]`` in their own units, less what the environment does not see of them.

        Two draws beyond the clip are one action: a model of the environment must not be asked which of them it was.
        """
        if self._squash is Squash.CLIP3_DIV3:
            cut = draws.clamp(-_CLIP, _CLIP)
        else:
            cut = torch.tanh(draws) if self._squash is Squash.TANH else draws
        return torch.where(self._bounded, cut, draws) if self._is_mapped else cut


class ActionNumbers:
    """Actions as a network reads them: continuous axes, then each branch as a one-hot block.

    Args:
        spec: what the behavior does.
        squash: see `ContinuousActions`.
        device: where actions are.

    Attributes:
        size: how many numbers.
    """

    def __init__(self, spec: ActionSpec, squash: Squash, device: torch.device | str = "cpu") -> None:
        self.size = spec.continuous_size + sum(spec.discrete_branches)
        self.axes = ContinuousActions(spec, squash, device)
        self._branches = spec.discrete_branches
        codes = [torch.arange(size) for size in self._branches]
        columns = [torch.full((size,), branch) for branch, size in enumerate(self._branches)]
        self._codes = torch.cat(codes).to(device) if codes else None
        self._columns = torch.cat(columns).to(device) if columns else None

    def of(self, continuous: Tensor | None, discrete: Tensor | None) -> Tensor:
        """Encodes draws ``[B, n]`` and choices ``[B, b]`` (each from 0) to ``[B, size]`` float32."""
        parts = [] if continuous is None else [self.axes.told_apart(continuous)]
        if discrete is not None:
            parts.append(self.one_hot(discrete))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def one_hot(self, discrete: Tensor) -> Tensor:
        """Encodes choices ``[B, b]`` to ``[B, sum(branches)]``; a choice that does not exist is a block of zeros."""
        if self._codes is None or self._columns is None:
            raise ValueError("the behavior has no discrete branches")
        return (discrete.index_select(1, self._columns) == self._codes).to(torch.float32)
