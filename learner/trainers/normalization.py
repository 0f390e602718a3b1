"""Running statistics of the observations: gathered from trained steps, merged and shown to the networks at publication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.device.columns import observation_column
from learner.networks.normalizer import RunningMoments, batch_moments
from learner.networks.value import ActorCritic
from learner.trainers.reduce import Reduce


class ObservationStatistics:
    """The float64 statistics behind all normalizers of a behavior's networks; without normalizers it does nothing.

    Args:
        network: actor and critic.
        spec: what the behavior sees.
        reduce: merges the moments of several learners.
        device: where the networks are.
    """

    def __init__(self, network: ActorCritic, spec: BehaviorSpec, reduce: Reduce, device: torch.device) -> None:
        self._encoders = network.vector_encoders()
        self._names = [observation_column(observation.name) for observation in spec.observations]
        self._reduce = reduce
        self._moments = {index: RunningMoments(encoder.size, device) for index, encoder in self._encoders}

    @torch.no_grad()
    def moments(self, storage: Mapping[str, Tensor], rows: Tensor) -> dict[int, Tensor]:
        """Computes the moments of ring rows ``[N]`` by position of the observation, ``[3, size]`` each."""
        encoders = dict(self._encoders)
        return {
            index: self._reduce.moments(
                batch_moments(encoder.scaled(storage[self._names[index]].index_select(0, rows)))
            )
            for index, encoder in encoders.items()
        }

    def merge(self, batch: Mapping[int, Tensor]) -> None:
        """Adds moments to the statistics; the networks do not see it before `publish`."""
        for index, moments in batch.items():
            self._moments[index].merge(moments)

    def publish(self) -> None:
        """Shows the statistics to actor and critic."""
        for index, encoder in self._encoders:
            if encoder.normalizer is not None:
                encoder.normalizer.publish(self._moments[index])

    def state_dict(self) -> dict[str, Any]:
        """Returns the statistics by position of the observation."""
        return {str(index): moments.state_dict() for index, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over saved statistics.

        Raises:
            KeyError, ValueError: they are of other observations.
        """
        for index, moments in self._moments.items():
            moments.load_state_dict(state[str(index)])
