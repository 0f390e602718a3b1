"""Running statistics behind the normalizers of networks: what is kept and shown of them, wherever the rows come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from learner.networks.encoders import VectorEncoder
from learner.networks.normalizer import RunningMoments


class EncoderStatistics:
    """The float64 statistics of the observations that encoders normalize; encoders of one observation share them.

    Args:
        encoders: that normalize, each with the position of its observation.
        device: where the networks are.
    """

    def __init__(self, encoders: Sequence[tuple[int, VectorEncoder]], device: torch.device) -> None:
        self._encoders = encoders
        self._moments = {index: RunningMoments(encoder.size, device) for index, encoder in encoders}

    def publish(self) -> None:
        """Shows the statistics to the networks."""
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
