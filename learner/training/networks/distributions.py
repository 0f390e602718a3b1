"""Action distributions in torch, for the losses; the actor's distributions in numpy compute the same numbers.

A *factor* is one continuous axis or one discrete branch; factors are independent given the observation. Columns of
factors are in this order: continuous axes, then branches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)


def gaussian_log_prob(mean: Tensor, log_std: Tensor, draws: Tensor) -> Tensor:
    """Computes the log-density of raw draws under independent Gaussians; all ``[B, n]``."""
    standardized = (draws - mean) * torch.exp(-log_std)
    return -0.5 * standardized.square() - log_std - _HALF_LOG_TWO_PI


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Computes the differential entropy of each axis ``[B, n]``, in nats."""
    return log_std + (0.5 + _HALF_LOG_TWO_PI)


def log_tanh_slope(draws: Tensor) -> Tensor:
    """Computes the logarithm of tanh's derivative, ``log(1 - tanh(u)**2)``, accurately where tanh saturates.

    Uses the form ``2 (log 2 - u - softplus(-2 u))``.
    """
    return 2.0 * (_LOG_TWO - draws - torch.nn.functional.softplus(-2.0 * draws))


def tanh_gaussian_log_prob(mean: Tensor, log_std: Tensor, draws: Tensor) -> Tensor:
    """Computes the log-density of ``tanh`` of raw Gaussian draws (arXiv:1801.01290, appendix C); ``[B, n]``."""
    return gaussian_log_prob(mean, log_std, draws) - log_tanh_slope(draws)


def categorical_log_prob(logits: Tensor, choices: Tensor) -> Tensor:
    """Computes the log-probability of the chosen action of each branch, ``[B, b]``.

    Args:
        logits: ``[B, sum(branches)]``, normalized per branch, branches side by side.
        choices: ``[B, b]`` int64, columns of ``logits``: actions plus `branch_offsets`.
    """
    return logits.gather(1, choices)


def categorical_entropy(logits: Tensor, branches: Sequence[int]) -> Tensor:
    """Computes the entropy of each branch ``[B, b]``, in nats; forbidden choices (about -1e8) count as 0 · log 0 = 0.

    Args:
        logits: ``[B, sum(branches)]``, normalized per branch, branches side by side.
        branches: Number of choices of each branch.
    """
    terms = logits.exp() * logits
    if len(branches) == 1:
        return terms.sum(1, keepdim=True).neg()
    return torch.stack([part.sum(1) for part in torch.split(terms, list(branches), dim=1)], dim=1).neg()


def branch_offsets(branches: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Returns the start of each branch in the concatenated logits: ``[b]`` int64."""
    return torch.tensor([0, *branches[:-1]] if branches else [], dtype=torch.int64, device=device).cumsum(0)
