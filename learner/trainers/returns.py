"""Advantages and returns over many segments at once, without padding.

Recursions of the form a_t = delta_t + c_t * a_{t+1} are affine maps chained from the end of each segment to its start.
All segments lie one after another in one flat axis; c = 0 at the end of each keeps them apart.
"""

from __future__ import annotations

import torch
from torch import Tensor


def reverse_affine_scan(delta: Tensor, coefficient: Tensor, longest: int) -> Tensor:
    """Solves a_i = delta_i + coefficient_i * a_{i+1} for all i, with a = 0 behind the last row.

    Pointer doubling: after k passes each row holds the sum over its next 2^k rows, and the product of their
    coefficients; ceil(log2(longest)) passes suffice (Hillis and Steele 1986, "Data parallel algorithms"; the
    composition of affine maps as in Blelloch 1990, "Prefix sums and their applications").

    Args:
        delta: ``[R, ...]`` float64.
        coefficient: the same shape; 0 in the last row of each segment.
        longest: rows of the longest segment.

    Returns:
        ``[R, ...]`` float64.
    """
    total, product = delta, coefficient
    step = 1
    while step < longest:
        reach = total.shape[0] - step
        if reach <= 0:
            break
        head = torch.addcmul(total[:reach], product[:reach], total[step:])
        total = torch.cat((head, total[reach:]))
        # Behind `reach` a chain has run over the end, where its product is 0 already.
        product = torch.cat((product[:reach] * product[step:], product[reach:]))
        step *= 2
    return total


def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    *,
    is_step: Tensor,
    bootstraps: Tensor,
    continues: Tensor,
    gamma: Tensor,
    lambd: float,
    longest: int,
) -> Tensor:
    """Computes generalized advantage estimates (Schulman et al. 2015, arXiv:1506.02438, equation 16).

    Rows are as in `learner.device.buffer.Plan`: each segment's steps, then its final row, so the value of the next
    observation is the value of the next row.

    Args:
        rewards: ``[R, K]`` float64, of K reward signals.
        values: ``[R, K]`` float64.
        is_step: ``[R]`` float64, 1 for steps, 0 for final rows.
        bootstraps: ``[R]`` or ``[R, K]`` float64, 1 where the next value counts, 0 at terminal steps.
        continues: ``[R]`` float64, 1 where the next row is a step of the same segment.
        gamma: ``[K]`` float64, the discount of each signal.
        lambd: the trace.
        longest: rows of the longest segment.

    Returns:
        ``[R, K]`` float64; 0 in final rows.
    """
    following = torch.cat((values[1:], torch.zeros_like(values[:1])))
    if bootstraps.dim() == 1:
        bootstraps = bootstraps.unsqueeze(1)
    delta = (rewards + gamma * bootstraps * following - values) * is_step.unsqueeze(1)
    return reverse_affine_scan(delta, (gamma * lambd) * continues.unsqueeze(1), longest)
