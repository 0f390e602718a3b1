"""Action distributions in torch, for the losses; the actor's numpy ones compute the same numbers.

A *factor* is one continuous axis or one discrete branch; factors are independent given the observation. Columns of
factors come continuous first, then branches. Each quantity has its derivative beside it: given the loss's derivative
with respect to the quantity (``outer``), the ``_backward`` function returns that with respect to the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)


def gaussian_log_prob(mean: Tensor, log_std: Tensor, draws: Tensor) -> Tensor:
    """Log-density of raw draws under independent Gaussians; all ``[B, n]``."""
    standardized = (draws - mean) * torch.exp(-log_std)
    return -0.5 * standardized.square() - log_std - _HALF_LOG_TWO_PI


def gaussian_log_prob_backward(mean: Tensor, log_std: Tensor, draws: Tensor, outer: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives with respect to mean and log_std, for ``outer`` ``[B, n]``."""
    precision = torch.exp(-log_std)
    standardized = (draws - mean) * precision
    return outer * standardized * precision, outer * (standardized.square() - 1.0)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Differential entropy of each axis ``[B, n]``, in nats; its derivative is 1."""
    return log_std + (0.5 + _HALF_LOG_TWO_PI)


def log_tanh_slope(draws: Tensor) -> Tensor:
    """Logarithm of the derivative of tanh, ``log(1 - tanh(u)**2)``, without loss of digits where tanh saturates.

    In the form ``2 (log 2 - u - softplus(-2 u))``; its derivative is ``-2 tanh(u)``.
    """
    return (_LOG_TWO - draws - torch.nn.functional.softplus(-2.0 * draws)).mul_(2.0)


def tanh_gaussian_log_prob(mean: Tensor, log_std: Tensor, draws: Tensor) -> Tensor:
    """Log-density of ``tanh`` of raw draws under independent Gaussians (arXiv:1801.01290, appendix C); ``[B, n]``."""
    return gaussian_log_prob(mean, log_std, draws) - log_tanh_slope(draws)


def categorical_log_prob(logits: Tensor, choices: Tensor) -> Tensor:
    """Log-probability of the chosen action of each branch, ``[B, b]``.

    Args:
        logits: ``[B, sum(branches)]``, normalized per branch, branches side by side.
        choices: ``[B, b]`` int64, columns of ``logits``: actions plus `branch_offsets`.
    """
    return logits.gather(1, choices)


def categorical_log_prob_backward(
    probabilities: Tensor, choices: Tensor, branches: Sequence[int], outer: Tensor
) -> Tensor:
    """Derivative with respect to the scores before normalization ``[B, sum(branches)]``, for ``outer`` ``[B, b]``.

    Of the log of a softmax it is 1 at the choice, less the probability of each (in its branch).
    """
    return (probabilities * -_per_choice(outer, branches)).scatter_add_(1, choices, outer)


def categorical_entropy(logits: Tensor, probabilities: Tensor, branches: Sequence[int]) -> Tensor:
    """Entropy of each branch ``[B, b]``, in nats; forbidden choices (about -1e8) count as 0 · log 0 = 0.

    Args:
        logits: ``[B, sum(branches)]``, normalized per branch, branches side by side.
        probabilities: their exponentials, which their users need several times.
        branches: number of choices of each branch.
    """
    terms = probabilities * logits
    if len(branches) == 1:
        return terms.sum(1, keepdim=True).neg_()
    return torch.stack([part.sum(1) for part in torch.split(terms, list(branches), dim=1)], dim=1).neg_()


def categorical_entropy_backward(
    logits: Tensor, probabilities: Tensor, entropy: Tensor, branches: Sequence[int], outer: float
) -> Tensor:
    """Derivative with respect to the scores before normalization: ``-p (log p + H)``, times ``outer``.

    Args:
        logits: see `categorical_entropy`.
        probabilities: see `categorical_entropy`.
        entropy: ``[B, b]``, what `categorical_entropy` returned.
        branches: number of choices of each branch.
        outer: derivative of the loss with respect to each entropy.
    """
    return probabilities * (logits + _per_choice(entropy, branches)) * -outer


def branch_offsets(branches: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Returns where each branch begins in the side-by-side logits: ``[b]`` int64."""
    return torch.tensor([0, *branches[:-1]] if branches else [], dtype=torch.int64, device=device).cumsum(0)


def _per_choice(factors: Tensor, branches: Sequence[int]) -> Tensor:
    """Spreads numbers of branches ``[B, b]`` over their choices: ``[B, sum(branches)]``, or something that broadcasts."""
    if len(branches) == 1:
        return factors
    return torch.cat(
        [part.expand(-1, size) for part, size in zip(torch.split(factors, 1, 1), branches, strict=True)], dim=1
    )
