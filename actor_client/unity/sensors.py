"""One observation of many agents as one array."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from communicator_objects import observation_pb2
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec, ObservationSpec


class BadSensorData(Exception):  # noqa: N818 - see BadPlayerData
    """An observation cannot be read.

    Attributes:
        row: Of the agent.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


class SensorReader:
    """Reads one sensor.

    Args:
        spec: What it shows.
        wire_shape: As the player sends it, without a batch axis.
    """

    __slots__ = ("_spec", "_wire_shape")

    def __init__(self, spec: ObservationSpec, wire_shape: Sequence[int]) -> None:
        self._spec = spec
        self._wire_shape = list(wire_shape)

    def read(self, observations: Sequence[observation_pb2.ObservationProto]) -> NDArray[Any]:
        """Returns the observations of n agents, [n, *shape] in the dtype of the spec.

        Raises:
            BadSensorData: One cannot be read.
        """
        spec, shape = self._spec, self._wire_shape
        found = np.empty((len(observations), spec.size), np.float32)
        for row, observation in enumerate(observations):
            if observation.shape != shape:
                raise BadSensorData(f"observation {spec.name} has shape {observation.shape[:8]}, not {shape}", row)
            values = observation.float_data.data
            if len(values) != spec.size:
                raise BadSensorData(f"observation {spec.name} has {len(values)} values, not {spec.size}", row)
            found[row] = values
        return found.reshape(len(observations), *spec.shape)


def sensor_readers(spec: BehaviorSpec, observations: Sequence[observation_pb2.ObservationProto]) -> list[SensorReader]:
    """Returns one reader an observation.

    Args:
        spec: Of the behavior.
        observations: Of the first agent, from which the spec was made.
    """
    return [SensorReader(one, first.shape) for one, first in zip(spec.observations, observations, strict=True)]
