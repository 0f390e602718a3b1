"""Heads: compute parameters of action distributions, and values, from the hidden layer."""

from __future__ import annotations

import math
from typing import Final

import torch
from rollcast.specs import ActionSpec
from rollcast.transforms import CLIP
from torch import Tensor, nn

from learner.training.networks.dense import linear
from learner.training.networks.initializers import Initializer

FORBIDDEN_LOGIT = -1e8
"""Logit of a forbidden action. Finite, so that a step with only forbidden actions is uniform, not NaN."""


LOG_STD_MIN: Final = -20.0
LOG_STD_MAX: Final = 2.0
"""Bounds of a state-dependent log standard deviation (Haarnoja et al. 2018, arXiv:1801.01290, and ML-Agents)."""
LEAST_RECORDED_LOG_STD: Final = -5.0
"""Lower bound for trainers that use recorded log-probabilities. A mean is rounded to about 1e-7 of its size: with a
smaller deviation, the log-probabilities of actor and learner would differ by more than 1e-3."""

LOG_CLIP: Final = math.log(CLIP)
"""Logarithm of the draw that CLIP3_DIV3 maps to the bound of an axis."""
PLAYER_LOG_STD: Final = -LOG_CLIP
"""Default of ``log_std_init`` without declared bounds, as Unity players declare actions: a third, as in ML-Agents."""
BOX_LOG_STD: Final = math.log(0.5)
"""Default of ``log_std_init`` with declared bounds, such as those of a Gymnasium Box: half of the half-range."""


def initial_log_stds(action: ActionSpec, log_std_init: float | None) -> list[float]:
    """Returns the initial log standard deviation of the draw of each continuous axis, for CLIP3_DIV3.

    Args:
        action: Actions of the behavior.
        log_std_init: Value of the run file: the logarithm of the standard deviation in half-ranges, where CLIP3_DIV3
            maps a draw of 3 to one half-range. An axis with an infinite bound has no half-range: its unit is that of
            the environment, and its default standard deviation is 1.
    """
    if not action.continuous_low:
        start = PLAYER_LOG_STD if log_std_init is None else log_std_init
        return [start + LOG_CLIP] * action.continuous_size
    start = BOX_LOG_STD if log_std_init is None else log_std_init
    return [
        start + LOG_CLIP if math.isfinite(low) and math.isfinite(high) else log_std_init or 0.0
        for low, high in zip(action.continuous_low, action.continuous_high, strict=True)
    ]


class GaussianHead(nn.Module):
    """Computes a mean, and a standard deviation that does not depend on the state.

    Args:
        inputs: Width of the hidden layer.
        start: Initial log standard deviation of each continuous axis.
        initializer: Draws the initial weights.
    """

    def __init__(self, inputs: int, start: list[float], initializer: Initializer) -> None:
        super().__init__()
        self.mean = initializer.linear(inputs, len(start), initializer.gains.mean)
        self.log_std = nn.Parameter(torch.tensor(start))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Computes mean and log standard deviation, both ``[B, actions]``."""
        mean = linear(self.mean, hidden)
        return mean, self.log_std.expand_as(mean)


class StateGaussianHead(nn.Module):
    """Computes a state-dependent mean and log standard deviation.

    Args:
        inputs: Width of the hidden layer.
        start: Initial log standard deviation of each continuous axis, before the part that depends on the state.
        initializer: Draws the initial weights.
        bounds: Lowest and highest log standard deviation.
    """

    def __init__(
        self,
        inputs: int,
        start: list[float],
        initializer: Initializer,
        bounds: tuple[float, float] = (LOG_STD_MIN, LOG_STD_MAX),
    ) -> None:
        super().__init__()
        self._bounds = bounds
        self.mean = initializer.linear(inputs, len(start), initializer.gains.mean)
        self.log_std = initializer.linear(inputs, len(start), initializer.gains.mean)
        if any(start):
            with torch.no_grad():
                self.log_std.bias.copy_(torch.tensor(start))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Computes mean and log standard deviation within its bounds, both ``[B, actions]``."""
        return linear(self.mean, hidden), torch.clamp(linear(self.log_std, hidden), *self._bounds)


class CategoricalHead(nn.Module):
    """Computes log-probabilities of every choice of every branch, with branches concatenated.

    Args:
        inputs: Width of the hidden layer.
        branches: Number of choices of each branch.
        initializer: Draws the initial weights.
    """

    def __init__(self, inputs: int, branches: tuple[int, ...], initializer: Initializer) -> None:
        super().__init__()
        self.branches = branches
        self.logits = initializer.linear(inputs, sum(branches), initializer.gains.logits)

    def forward(self, hidden: Tensor, action_masks: Tensor | None) -> Tensor:
        """Computes log-probabilities ``[B, sum(branches)]``; each branch sums to 1.

        Args:
            hidden: ``[B, inputs]``.
            action_masks: ``[B, sum(branches)]``, 1 = allowed, 0 = forbidden; None = all allowed.
        """
        return log_probabilities(linear(self.logits, hidden), action_masks, self.branches)


def log_probabilities(logits: Tensor, action_masks: Tensor | None, branches: tuple[int, ...]) -> Tensor:
    """Computes log-probabilities ``[B, sum(branches)]`` from scores of the same shape; each branch sums to 1.

    Args:
        logits: The scores.
        action_masks: ``[B, sum(branches)]``, 1 = allowed, 0 = forbidden; None = all allowed.
        branches: Number of choices of each branch.
    """
    if action_masks is not None:
        allowed = action_masks.to(logits.dtype)
        logits = logits * allowed + FORBIDDEN_LOGIT * (1.0 - allowed)
    if len(branches) == 1:
        return torch.log_softmax(logits, dim=1)
    return torch.cat([torch.log_softmax(part, dim=1) for part in torch.split(logits, list(branches), dim=1)], dim=1)


class ValueHead(nn.Module):
    """Computes one value for each reward signal.

    Args:
        inputs: Width of the hidden layer.
        signals: Number of reward signals.
        initializer: Draws the initial weights.
    """

    def __init__(self, inputs: int, signals: int, initializer: Initializer) -> None:
        super().__init__()
        self.values = initializer.value(inputs, signals)

    def forward(self, hidden: Tensor) -> Tensor:
        """Computes values ``[B, signals]``."""
        return linear(self.values, hidden)
