"""The scale of value heads: PopArt without its shift, which trains them on targets with a root mean square of 1.

The targets of the values, lambda-returns or V-trace targets, have the scale of the rewards. A head trained on them
directly needs a learning rate, a weight of the value loss and a strength of rewards that fit this scale. A scaled head
needs none of these:

    V = sigma * n        n is the output of the head, sigma is the root mean square of the targets of each signal

Advantages, targets and reports use V. Only the value loss uses n, with targets divided by sigma.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from learner.training.networks.heads import ValueHead
from learner.training.networks.normalizer import RunningMoments, batch_moments
from learner.training.optimizers.reduce import Reduce

HISTORY_STEPS: Final = 100_000
"""Largest weight of the past, in steps, so that the scale follows returns that change by orders of magnitude."""


class ValueScale:
    """Adaptive scale of value heads, with outputs preserved (van Hasselt et al. 2016, arXiv:1602.07714, with mu = 0).

    Each reward signal has a scale, like each task in Hessel et al. 2018 (arXiv:1809.04474). It is at least 1e-4, as the
    standard deviation in that paper (`RunningMoments.std`).

    Args:
        head: The head of the values of K signals.
        reduce: Merges the moments of several learners.
        device: Device of the head.
        is_on: Whether targets are scaled; otherwise the scale stays 1.

    Attributes:
        is_on: Whether targets are scaled.
        scale: ``[K]`` float64, sigma.
    """

    def __init__(self, head: ValueHead, reduce: Reduce, device: torch.device, *, is_on: bool) -> None:
        self._layer = head.values
        self._reduce = reduce
        self.is_on = is_on
        self._moments = RunningMoments(head.values.out_features, device)
        self.scale = torch.ones_like(self._moments.mean)

    def values(self, outputs: Tensor) -> Tensor:
        """Computes values ``[R, K]`` float64, in the units of the rewards, from outputs of the head."""
        return outputs.double() * self.scale

    def normalized(self, values: Tensor) -> Tensor:
        """Computes the outputs of the head that stand for values ``[N, K]`` float64."""
        return values / self.scale

    def of_advantages(self) -> Tensor:
        """Returns the divisor of advantages averaged over the signals, a scalar.

        It is the root mean square over the signals of the standard deviations of their targets: with one divisor for
        all signals, their strengths keep their effect.
        """
        return self._moments.std().square().mean().sqrt()

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether the scale is finite in float32."""
        return self.scale.float().isfinite().all()

    @torch.no_grad()
    def merge(self, targets: Tensor) -> None:
        """Adds the targets of one update, ``[N, K]`` float64, and rescales the head so that its values do not change.

        Targets that are not finite are left out; the trainer later undoes their update. Nothing waits for the device.
        """
        if not self.is_on:
            return
        batch = self._reduce.moments(batch_moments(targets))
        batch = torch.where(batch.isfinite().all(), batch, torch.zeros_like(batch))
        moments = self._moments
        # The moments begin with one artificial row, which counts only until the first merge.
        kept = (HISTORY_STEPS / moments.count).clamp(max=1.0) * ((moments.count > 1.0) | (batch[0, 0] == 0.0))
        moments.count, moments.m2 = moments.count * kept, moments.m2 * kept
        moments.merge(batch)
        self._rescale(_root_mean_square(moments))

    def _rescale(self, scale: Tensor) -> None:
        """Changes the scale, and the head's weights so that its values do not change (equation 7 of the first paper)."""
        factor = self.scale / scale
        self._layer.weight.copy_(self._layer.weight.double() * factor.unsqueeze(1))
        self._layer.bias.copy_(self._layer.bias.double() * factor)
        self.scale = scale

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the moments."""
        return self._moments.state_dict()

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the moments that belong to the loaded weights of the head.

        If targets are not scaled, the scale is folded into the weights, so that the values do not change.

        Raises:
            KeyError, TypeError, ValueError: The state does not fit.
        """
        self._moments.load_state_dict(state)
        self.scale = _root_mean_square(self._moments)
        if not self.is_on:
            self._moments = RunningMoments(self._layer.out_features, self._layer.weight.device)
            self._rescale(torch.ones_like(self.scale))


def _root_mean_square(moments: RunningMoments) -> Tensor:
    """Returns the root mean square ``[K]`` of what was merged, at least 1e-4."""
    return (moments.std().square() + moments.mean.square()).sqrt()
