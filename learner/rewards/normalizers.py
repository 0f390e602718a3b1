"""Running statistics of the observations that reward signals see, where their own ``network_settings`` ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from learner.networks.encoders import ObservationEncoder
from learner.networks.normalizer import RunningMoments, batch_moments
from learner.optimizers.reduce import Reduce


class SignalNormalizers:
    """The float64 statistics behind the normalizers of a signal's encoders, all of which see the same.

    Each minibatch that the signal learns from is added, before it is learned from.

    Args:
        encoders: of the signal.
        reduce: merges the moments of several learners.
        device: where the networks are.
    """

    def __init__(self, encoders: Sequence[ObservationEncoder], reduce: Reduce, device: torch.device) -> None:
        self._encoders = [found for encoder in encoders for found in encoder.normalizing.items()]
        self._reduce = reduce
        self._moments = {index: RunningMoments(encoder.size, device) for index, encoder in self._encoders}

    @torch.no_grad()
    def merge(self, observations: Sequence[Tensor]) -> None:
        """Adds observations ``[B, *shape]`` and shows the networks the result; infinities and NaN are left out.

        Nothing waits for the device: moments that are not finite become those of no row.
        """
        encoders = dict(self._encoders)
        for index, moments in self._moments.items():
            batch = self._reduce.moments(batch_moments(encoders[index].scaled(observations[index])))
            moments.merge(torch.where(batch.isfinite().all(), batch, torch.zeros_like(batch)))
        for index, encoder in self._encoders:
            if encoder.normalizer is not None:
                encoder.normalizer.publish(self._moments[index])

    def state_dict(self) -> dict[str, Any]:
        """Returns the statistics by position of the observation."""
        return {str(index): moments.state_dict() for index, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over saved statistics; the networks' own copies are part of the networks.

        Raises:
            KeyError, ValueError: they are of other observations.
        """
        for index, moments in self._moments.items():
            moments.load_state_dict(state[str(index)])
