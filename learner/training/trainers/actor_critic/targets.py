"""Computes advantages and returns over many segments at once, without padding: GAE, lambda-returns, V-trace.

Recursions of the form a_t = delta_t + c_t * a_{t+1} are affine maps chained from the end of each segment to its start.
All segments lie one after another in one flat axis; c = 0 at the end of each keeps them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from learner.training.buffers.buffer import UpdateRows


class Valued(NamedTuple):
    """R rows as in `learner.training.buffers.buffer.UpdateRows`, valued by the networks from before the update.

    Attributes:
        rewards: ``[R, K]`` float64, of K reward signals; 0 in final rows.
        values: ``[R, K]`` float64.
        bootstraps: ``[R, K]`` float64, 1 where the value of the next row counts.
        gamma: ``[K]`` float64, discount factors.
        log_ratio: Computes ``[R]`` float64: log-probability of the whole action under the current policy minus the
            recorded one; 0 in final rows.
        baselines: ``[R, K]`` float64, of a critic that has them.
    """

    rewards: Tensor
    values: Tensor
    bootstraps: Tensor
    gamma: Tensor
    log_ratio: Callable[[], Tensor]
    baselines: Tensor | None = None


class Targets(NamedTuple):
    """The targets of the losses.

    Attributes:
        advantages: ``[R, K]`` float64; final rows are not used.
        returns: ``[R, K]`` float64, targets of the values.
    """

    advantages: Tensor
    returns: Tensor


class TargetRule(Protocol):
    """Computes the targets of an algorithm."""

    def __call__(self, plan: UpdateRows, valued: Valued) -> Targets:
        """Computes targets without waiting for the device."""


def reverse_affine_scan(delta: Tensor, coefficient: Tensor, longest: int) -> Tensor:
    """Solves a_i = delta_i + coefficient_i * a_{i+1} for all i, with a = 0 after the last row.

    Pointer doubling: after k passes each row holds the sum over its next 2^k rows, and the product of their
    coefficients; ceil(log2(longest)) passes suffice (Hillis and Steele 1986, "Data parallel algorithms"; the
    composition of affine maps as in Blelloch 1990, "Prefix sums and their applications").

    Args:
        delta: ``[R, ...]`` float64.
        coefficient: The same shape; 0 in the last row of each segment.
        longest: Rows of the longest segment.

    Returns:
        ``[R, ...]`` float64.
    """
    total, product = delta, coefficient
    step = 1
    while step < longest:
        reach = total.shape[0] - step
        if reach <= 0:
            break
        total = torch.cat((torch.addcmul(total[:reach], product[:reach], total[step:]), total[reach:]))
        # Past `reach`, a chain has run over the end, where its product is already 0.
        product = torch.cat((product[:reach] * product[step:], product[reach:]))
        step *= 2
    return total


def _of_next(values: Tensor, bootstraps: Tensor) -> Tensor:
    """Returns the next row's values where they count, otherwise 0; ``[R, K]``."""
    return torch.cat((values[1:], torch.zeros_like(values[:1]))) * bootstraps


@dataclass(frozen=True, slots=True)
class VTraceTargets:
    """V-trace (Espeholt et al. 2018, arXiv:1802.01561, equation 1, remark 1 and remark 2) under the policy from before the update.

    v_s - V(x_s) = rho_s * (r_s + gamma * V(x_{s+1}) - V(x_s)) + gamma * c_s * (v_{s+1} - V(x_{s+1})), in which
    rho = min(rho_bar, pi / mu) and c = lambda * min(c_bar, pi / mu). Under mu = pi these are lambda-returns.

    Advantages are r_s + gamma * v_{s+1} - V(x_s), without rho. The loss applies the ratio to the policy gradient, because
    there the ratio follows the policy through the epochs.

    Attributes:
        lambd: Trace decay, lambda.
        rho_bar: Truncation of ratios in the temporal differences; it decides which policy's values are learned.
        c_bar: Truncation of ratios in the traces; it decides the speed and the noise of learning.
    """

    lambd: float
    rho_bar: float
    c_bar: float

    def __call__(self, plan: UpdateRows, valued: Valued) -> Targets:
        """Computes targets; in final rows the returns are the values, and the advantages 0."""
        rewards, values, gamma, log_ratio = valued.rewards, valued.values, valued.gamma, valued.log_ratio()
        # Truncated before the exponential, so that it cannot overflow.
        rho = log_ratio.clamp(max=math.log(self.rho_bar)).exp().mul(plan.is_step).unsqueeze(1)
        trace = log_ratio.clamp(max=math.log(self.c_bar)).exp().mul(self.lambd * plan.continues).unsqueeze(1)
        delta = rho * (rewards + gamma * _of_next(values, valued.bootstraps) - values)
        targets = values + reverse_affine_scan(delta, gamma * trace, plan.longest)
        advantages = (rewards + gamma * _of_next(targets, valued.bootstraps) - values) * plan.is_step.unsqueeze(1)
        return Targets(advantages, targets)


@dataclass(frozen=True, slots=True)
class GeneralizedAdvantages:
    """Generalized advantage estimation (Schulman et al. 2015, arXiv:1506.02438, equation 16).

    Returns are advantages plus values.

    Attributes:
        lambd: Trace decay, lambda.
    """

    lambd: float

    def __call__(self, plan: UpdateRows, valued: Valued) -> Targets:
        """Computes targets; in final rows the advantages are 0."""
        values, gamma = valued.values, valued.gamma
        following = _of_next(values, valued.bootstraps)
        delta = (valued.rewards + gamma * following - values) * plan.is_step.unsqueeze(1)
        advantages = reverse_affine_scan(delta, (gamma * self.lambd) * plan.continues.unsqueeze(1), plan.longest)
        return Targets(advantages, advantages + values)


@dataclass(frozen=True, slots=True)
class CounterfactualAdvantages:
    """Lambda-returns of the group's values, minus counterfactual baselines (arXiv:2111.05992, equation 8).

    Attributes:
        lambd: Trace decay, lambda.
    """

    lambd: float

    def __call__(self, plan: UpdateRows, valued: Valued) -> Targets:
        """Computes targets; without baselines the values take their place."""
        found = GeneralizedAdvantages(self.lambd)(plan, valued)
        if valued.baselines is None:
            return found
        return Targets(found.returns - valued.baselines, found.returns)
