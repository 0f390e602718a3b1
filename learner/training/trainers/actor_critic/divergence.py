"""Measures how far an update moves the policy from the one that acted, and limits it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from learner.training.networks.policy import PolicyOutput
from learner.training.optimizers.adam import FlatAdam
from learner.training.trainers.actor_critic.loss import Batch, Ratio, log_probability

STOP_FACTOR = 1.5
"""An update ends above this multiple of ``target_kl``, as in Stable-Baselines3."""


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """Computes the divergence of the acting policy from the current one, a scalar: the mean of ``r - 1 - log r``.

    This estimate has no negative terms and less variance than ``-log r`` (Schulman 2020, "Approximating KL divergence",
    k3).

    Args:
        log_ratio: Current minus recorded log-probability of whole actions, ``[N, 1]``.
    """
    return (log_ratio.exp() - 1.0 - log_ratio).mean()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an update; without any limit, nothing is measured before the last epoch.

    Attributes:
        target_kl: The update ends before any step but the first if the divergence is above `STOP_FACTOR` times this
            value; None never ends it. Reading the divergence waits for the device once per minibatch.
        desired_kl: Divergence that an adaptive learning rate aims at; None for a rate with another schedule.
    """

    target_kl: float | None = None
    desired_kl: float | None = None


class DivergenceMeter:
    """Measures the divergence of the minibatches of one update, over whole actions; keeps those of one epoch.

    Args:
        limits: Limits of the update.
        optimizer: Optimizer whose learning rate, if adaptive, follows the divergence.
        ratio: Form of the recorded log-probabilities.
    """

    def __init__(self, limits: Limits, optimizer: FlatAdam, ratio: Ratio) -> None:
        self._limits = limits
        self._optimizer = optimizer
        self._ratio = ratio
        self._is_limited = limits != Limits()
        self._measures = False
        self._epoch: list[Tensor] = []
        self._tried = 0
        self._is_first = True

    def begin_epoch(self, *, is_last: bool) -> None:
        """Forgets the previous epoch. Without limits, only the last epoch is measured."""
        self._measures = is_last or self._is_limited
        self._epoch, self._tried = [], 0

    def measure(self, output: PolicyOutput, batch: Batch) -> None:
        """Measures a minibatch or a part of one, before its optimizer step."""
        if not self._measures:
            return
        with torch.no_grad():
            log_ratio = log_probability(output, batch.continuous, batch.discrete, self._ratio) - batch.log_prob
            log_ratio = log_ratio.sum(1, keepdim=True) if log_ratio.shape[1] > 1 else log_ratio
            self._epoch.append(log_ratio if self._optimizer.reduce.has_rows else log_ratio[:0])

    def sums(self) -> Tensor | None:
        """Returns the divergence since the last call as its sum over rows, and the rows; None without limits."""
        if not self._is_limited:
            return None
        log_ratio = torch.cat(self._epoch[self._tried :])  # measured without gradients
        self._tried = len(self._epoch)
        rows = log_ratio.shape[0]
        total = approximate_kl(log_ratio) * rows if rows else log_ratio.sum()
        return torch.stack((total, log_ratio.new_full((), rows)))

    def allows_step(self, sums: Tensor | None) -> bool:
        """Adapts the learning rate to the divergence; returns whether the update continues.

        An update always takes one step: with steps of older versions, the divergence may be above the target at the
        start.

        Args:
            sums: Result of the last `sums`, over all learners, so that all end an update at the same minibatch.
        """
        if sums is None:
            return True
        is_first, self._is_first = self._is_first, False
        total, count = sums
        divergence = total / count
        if self._limits.desired_kl is not None:
            self._optimizer.adapt(divergence, self._limits.desired_kl)
        target = self._limits.target_kl
        return target is None or is_first or not bool(divergence > STOP_FACTOR * target)

    def log_ratio(self) -> Tensor:
        """Returns current minus recorded log-probabilities of the whole actions of the epoch, ``[N, 1]``."""
        found = torch.cat(self._epoch)
        return found if len(found) else found.new_zeros(1, 1)  # of a learner without rows in the epoch
