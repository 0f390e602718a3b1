"""Running statistics of the observations that reward signals see, where their own ``network_settings`` ask for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from learner.networks.encoders import ObservationEncoder
from learner.networks.normalizer import batch_moments
from learner.networks.statistics import EncoderStatistics
from learner.optimizers.reduce import Reduce


class SignalNormalizers(EncoderStatistics):
    """The float64 statistics behind the normalizers of a signal's encoders, all of which see the same.

    Each minibatch that the signal learns from is added, before it is learned from.

    Args:
        encoders: of the signal.
        reduce: merges the moments of several learners.
        device: where the networks are.
    """

    def __init__(self, encoders: Sequence[ObservationEncoder], reduce: Reduce, device: torch.device) -> None:
        super().__init__([found for encoder in encoders for found in encoder.normalizing.items()], device)
        self._reduce = reduce

    @torch.no_grad()
    def merge(self, observations: Sequence[Tensor]) -> None:
        """Adds observations ``[B, *shape]`` and shows the networks the result; infinities and NaN are left out.

        Nothing waits for the device: moments that are not finite become those of no row.
        """
        encoders = dict(self._encoders)
        for index, moments in self._moments.items():
            batch = self._reduce.moments(batch_moments(encoders[index].scaled(observations[index])))
            moments.merge(torch.where(batch.isfinite().all(), batch, torch.zeros_like(batch)))
        self.publish()
