"""Running statistics of observations: gathered from the steps of an update; networks get them before that update."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.training.buffers.columns import observation_column
from learner.training.networks.encoders import EncoderStatistics, ObservationEncoder, VectorEncoder
from learner.training.networks.tower import BoardEncoder
from learner.training.optimizers.reduce import Reduce

log = structlog.get_logger(__name__)

LOG_SECONDS: Final = 10.0
"""Least time between two warnings."""


class ObservationStatistics(EncoderStatistics):
    """The float64 statistics behind all normalizers of a behavior's networks; does nothing without normalizers.

    Args:
        network: All networks that receive observations.
        spec: Observations of the behavior.
        reduce: Merges the moments of several learners.
        device: Device of the networks.
        clock: Returns monotonic seconds.

    Attributes:
        refused: Number of moments left out so far because they were not finite.
    """

    def __init__(
        self,
        network: nn.Module,
        spec: BehaviorSpec,
        reduce: Reduce,
        device: torch.device,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(normalizing_encoders(network), device)
        self.refused = 0
        self._none_clipped = torch.zeros((), dtype=torch.float64, device=device)
        self._behavior = spec.name
        self._clock = clock
        self._next_warning = clock()
        self._names = [observation_column(observation.name) for observation in spec.observations]
        self._reduce = reduce

    @torch.no_grad()
    def moments(self, storage: Mapping[str, Tensor], rows: Tensor) -> dict[int, Tensor]:
        """Computes the moments of ring rows ``[N]`` by observation index, ``[3, size]`` each, with values clipped.

        See `learner.training.networks.normalizer.RunningMoments`.
        """
        encoders = dict(self._encoders)
        return {
            index: self._reduce.moments(
                self._moments[index].moments(encoder.scaled(storage[self._names[index]].index_select(0, rows)))
            )
            for index, encoder in encoders.items()
        }

    @property
    def clipped(self) -> Tensor:
        """Number of values that were clipped before they entered the statistics, a float64 scalar on the device."""
        return sum((each.clipped for each in self._moments.values()), self._none_clipped)

    def merge(self, batch: Mapping[int, Tensor]) -> None:
        """Adds moments to the statistics; the networks receive them with `publish`.

        Moments that are not finite are left out: one infinite observation among millions would turn every later one
        into NaN permanently. The update itself is sound, because normalized observations are clamped.
        """
        for index, moments in batch.items():
            if bool(moments.isfinite().all()):
                self._moments[index].merge(moments)
            else:
                self._refuse(self._names[index])

    def _refuse(self, name: str) -> None:
        self.refused += 1
        now = self._clock()
        if now >= self._next_warning:
            self._next_warning = now + LOG_SECONDS
            log.warning(
                "observations_not_finite",
                behavior=self._behavior,
                column=name,
                refused=self.refused,
                hint="an environment sends infinite or NaN observations; the normalizer skips the updates that contain "
                "them",
            )


def normalizing_encoders(network: nn.Module) -> list[tuple[int, VectorEncoder]]:
    """Returns every normalizing encoder of a network, including copies, with the index of its observation."""
    encoders = (module for module in network.modules() if isinstance(module, ObservationEncoder | BoardEncoder))
    return [positioned for encoder in encoders for positioned in encoder.normalizing.items()]
