"""Reads one observation of many agents as one array: floats unchanged, pictures with their channels first."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import BehaviorSpec, ObservationSpec
from rollcast.unity.communicator_objects import observation_pb2
from rollcast.unity.finite import zero_what_is_not_finite
from rollcast.unity.floats import FLOAT, FloatReader
from rollcast.unity.forms import PICTURE_SCALE
from rollcast.unity.pictures import BadPicture, PictureReader

Observations = Sequence[observation_pb2.ObservationProto]
Rows = NDArray[np.bool_] | None

MAX_BATCH_BYTES: Final = 2**30
"""Unpacked bytes of an observation of all agents of a message; a small message may announce, or pack, far more."""


class BadSensorData(Exception):  # noqa: N818 - see BadPlayerData
    """An observation cannot be read.

    Attributes:
        row: Row of the agent.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


class SensorReader:
    """Reads one sensor.

    A player may switch the compression of a picture at any time, and agents of one behavior may differ in it. The type
    in the spec is the first agent's and stays.

    Args:
        spec: The observation's spec.
        wire_shape: Shape on the wire, without a batch axis.
        layout: The player's order of a picture's axes.
    """

    __slots__ = ("_channels_last", "_float_reader", "_pictures", "_wire_shape", "spec")

    def __init__(self, spec: ObservationSpec, wire_shape: Sequence[int], layout: ImageLayout | None) -> None:
        self.spec = spec
        self._wire_shape = list(wire_shape)
        self._channels_last = layout is ImageLayout.HWC
        self._float_reader = FloatReader(spec.size)
        picture = spec.kind is ObservationKind.IMAGE
        self._pictures = PictureReader(*spec.shape) if picture else None

    def read(self, observations: Observations) -> tuple[NDArray[Any], Rows]:
        """Returns the observations of n agents, [n, *shape] in the dtype of the spec, and the faulty rows.

        Faulty rows, bool [n], had NaN or infinity, which were replaced by 0; None if there are none.

        Raises:
            BadSensorData: An observation cannot be read.
        """
        shape = self._wire_shape
        if len(observations) * self.spec.size_bytes > MAX_BATCH_BYTES:
            raise BadSensorData(
                f"of {len(observations)} agents takes {self.spec.size_bytes} bytes each; at most "
                f"{MAX_BATCH_BYTES} together can be read. Make the observation smaller, or use fewer agents in "
                "each player",
                0,
            )
        packed = False
        for row, observation in enumerate(observations):
            if observation.shape != shape:
                raise BadSensorData(f"has shape {observation.shape[:8]}; the behavior began with {shape}", row)
            packed |= observation.compression_type != observation_pb2.NONE
        if not packed:
            return self._floats(observations)
        if len({observation.compression_type for observation in observations}) == 1:
            return self._bytes(observations), None
        return self._mixed(observations)

    def _floats(self, observations: Observations) -> tuple[NDArray[Any], Rows]:
        spec, found = self.spec, self._float_reader.read(observations)
        if isinstance(found, int):
            count = len(observations[found].float_data.data)
            raise BadSensorData(f"has {count} values; its shape {self._wire_shape} needs {spec.size}", found)
        rows = zero_what_is_not_finite(found)
        if self._channels_last:
            channels, height, width = spec.shape
            shaped = np.ascontiguousarray(found.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))
        else:
            shaped = found.reshape(len(found), *spec.shape)
        return (shaped if spec.dtype == FLOAT else _as_bytes(shaped)), rows

    def _bytes(self, observations: Observations) -> NDArray[Any]:
        spec, pictures = self.spec, self._pictures
        found = np.empty((len(observations), *spec.shape), np.uint8)
        for row, observation in enumerate(observations):
            if pictures is None or observation.compression_type != observation_pb2.PNG:
                compression = observation.compression_type
                raise BadSensorData(
                    f"has compression {compression}; only images can be compressed, and only as PNG (1)", row
                )
            try:
                pictures.read(observation.compressed_data, observation.compressed_channel_mapping, found[row])
            except BadPicture as error:
                raise BadSensorData(str(error), row) from None
        return found if spec.dtype == np.uint8 else found.astype(FLOAT) / np.float32(PICTURE_SCALE)

    def _mixed(self, observations: Observations) -> tuple[NDArray[Any], Rows]:
        found = np.empty((len(observations), *self.spec.shape), self.spec.dtype)
        bad = np.zeros(len(observations), np.bool_)
        for row, observation in enumerate(observations):
            try:
                found[row : row + 1], rows = self.read([observation])
            except BadSensorData as error:
                raise BadSensorData(str(error), row) from None
            bad[row] = rows is not None
        return found, bad if bad.any() else None


def _as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns floats from 0 to 1 as the bytes of an equal PNG."""
    found: NDArray[np.uint8] = np.rint(np.clip(values, 0.0, 1.0) * np.float32(PICTURE_SCALE)).astype(np.uint8)
    return found


def sensor_readers(
    spec: BehaviorSpec, observations: Observations, layouts: Sequence[ImageLayout | None]
) -> list[SensorReader]:
    """Returns one reader per observation.

    Args:
        spec: Spec of the behavior.
        observations: Observations of the first agent, from which the spec was made.
        layouts: The player's order of the axes of each, if it is a picture.
    """
    parts = zip(spec.observations, observations, layouts, strict=True)
    return [SensorReader(one, first.shape, layout) for one, first, layout in parts]
