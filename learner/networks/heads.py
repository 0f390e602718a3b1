"""Heads: hidden numbers to the parameters of action distributions, and to values."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from learner.networks.dense import linear
from learner.networks.initializers import Initializer

FORBIDDEN_LOGIT = -1e8
"""What a forbidden action's logit becomes. Finite, so that a step whose actions are all forbidden is uniform, not NaN."""


class GaussianHead(nn.Module):
    """Mean, and a standard deviation that does not depend on the state (its logarithm starts at 0).

    Args:
        inputs: width of the hidden numbers.
        actions: number of continuous axes.
        initializer: where initial weights come from.
    """

    def __init__(self, inputs: int, actions: int, initializer: Initializer) -> None:
        super().__init__()
        self.mean = initializer.linear(inputs, actions, initializer.gains.mean)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Computes mean and log standard deviation, both ``[B, actions]``."""
        mean = linear(self.mean, hidden)
        return mean, self.log_std.expand_as(mean)


class CategoricalHead(nn.Module):
    """Log-probabilities of every choice of every branch, branches side by side.

    Args:
        inputs: width of the hidden numbers.
        branches: number of choices of each branch.
        initializer: where initial weights come from.
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
        logits = linear(self.logits, hidden)
        if action_masks is not None:
            allowed = action_masks.to(logits.dtype)
            logits = logits * allowed + FORBIDDEN_LOGIT * (1.0 - allowed)
        if len(self.branches) == 1:
            return torch.log_softmax(logits, dim=1)
        return torch.cat(
            [torch.log_softmax(part, dim=1) for part in torch.split(logits, list(self.branches), dim=1)], dim=1
        )


class ValueHead(nn.Module):
    """One value for each reward signal.

    Args:
        inputs: width of the hidden numbers.
        signals: number of reward signals.
        initializer: where initial weights come from.
    """

    def __init__(self, inputs: int, signals: int, initializer: Initializer) -> None:
        super().__init__()
        self.values = initializer.value(inputs, signals)

    def forward(self, hidden: Tensor) -> Tensor:
        """Computes values ``[B, signals]``."""
        return linear(self.values, hidden)
