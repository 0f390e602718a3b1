"""Converts observations of a behavior to Unity's messages and back, including kinds that Unity lacks.

Pictures of bytes are written as PNG, all others as floats. A picture always has its channels first, as ML-Agents from
release 21 on expects. Categories are written as floats too.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rollcast.enums import ImageLayout, ObservationKind, ObservationRole
from rollcast.errors import BadSpec
from rollcast.specs import ObservationSpec
from rollcast.unity.communicator_objects import observation_pb2
from rollcast.unity.floats import FLOAT, varint
from rollcast.unity.forms import wire_layout
from rollcast.unity.pictures import CHANNELS_PER_FILE, SIGNATURE
from rollcast.unity.sensors import BadSensorData, SensorReader

LARGEST: Final = 1e15
"""Largest observation: losses and normalizers square it in float32, whose largest number is 3.4e38."""

_NONE, _MOVES, _SIZED = 1, 2, 4
"""Flags of an axis on Unity's wire."""
_COMPRESSION_LEVEL: Final = 6
_RGB_8_BIT: Final = bytes((8, 2, 0, 0, 0))
"""Bit depth, colour type, and the only defined compression, filter and order (PNG specification 11.2.2)."""


def to_message(values: NDArray[Any], spec: ObservationSpec) -> observation_pb2.ObservationProto:
    """Returns one observation, [*shape] in the spec's dtype, as Unity writes it."""
    picture = spec.kind is ObservationKind.IMAGE
    if picture and spec.layout is ImageLayout.HWC:
        values = values.transpose(2, 0, 1)
    message = observation_pb2.ObservationProto(
        shape=values.shape,
        dimension_properties=_properties(spec),
        observation_type=(
            observation_pb2.GOAL_SIGNAL if spec.role is ObservationRole.GOAL else observation_pb2.DEFAULT
        ),
        name=spec.name,
    )
    if picture and spec.dtype == np.uint8:
        message.compression_type = observation_pb2.PNG
        message.compressed_data = encode(values)
        message.compressed_channel_mapping.extend(channel_mapping(len(values)))
        return message
    data = np.ascontiguousarray(values, FLOAT).tobytes()
    # The repeated field would take 30 times as long.
    message.float_data.MergeFromString(b"\x0a" + varint(len(data)) + data)
    return message


def _properties(spec: ObservationSpec) -> tuple[int, ...]:
    if spec.kind is ObservationKind.IMAGE:
        return _NONE, _MOVES, _MOVES
    if spec.kind is ObservationKind.ENTITIES:
        return _SIZED, _NONE
    return (_NONE,) if len(spec.shape) == 1 else (0,) * len(spec.shape)


class DemonstrationSensor:
    """Reads one observation of a behavior from a file's records.

    Args:
        spec: The observation's spec in the run's behavior.
        first: The observation in the file's first record.

    Raises:
        BadSensorData: The file's observation has another shape.
    """

    def __init__(self, spec: ObservationSpec, first: observation_pb2.ObservationProto) -> None:
        self._spec = spec
        picture = spec.kind is ObservationKind.IMAGE
        shape = _channels_first(spec) if picture else spec.shape
        layout = _layout(shape, first) if picture else None
        expected = (shape[1], shape[2], shape[0]) if layout is ImageLayout.HWC else shape
        if tuple(first.shape) != expected:
            raise BadSensorData(f"has shape {list(first.shape)[:8]}; the run's behavior has {list(spec.shape)}", 0)
        pictured = replace(
            spec,
            dtype=spec.dtype if picture and spec.dtype == np.uint8 else FLOAT,
            shape=shape,
            layout=ImageLayout.CHW if picture else ImageLayout.UNSPECIFIED,
        )
        self._reader = SensorReader(pictured, first.shape, layout)

    def read(self, observations: Sequence[observation_pb2.ObservationProto]) -> NDArray[Any]:
        """Returns n observations, [n, *shape] in the spec's dtype.

        Raises:
            BadSensorData: An observation cannot be read, is not finite, or does not match the spec; the error names the
                row.
        """
        values, faulty = self._reader.read(observations)
        if faulty is not None:
            raise BadSensorData("has NaN or infinity", int(faulty.argmax()))
        spec = self._spec
        if spec.kind is ObservationKind.IMAGE and spec.layout is ImageLayout.HWC:
            values = np.ascontiguousarray(values.transpose(0, 2, 3, 1))
        if values.dtype.kind == "f" and (excess := _rows(np.abs(values) > LARGEST)) is not None:
            raise BadSensorData(f"has a value above {LARGEST:g}, whose square is not finite", excess)
        return values if values.dtype == spec.dtype else self._converted(values)

    def _converted(self, values: NDArray[Any]) -> NDArray[Any]:
        spec = self._spec
        if spec.dtype.kind == "f":
            return values.astype(spec.dtype)
        whole = np.rint(values)
        lowest, highest = _range(spec)
        wrong = _rows((whole != values) | (whole < lowest) | (whole > highest))
        if wrong is not None:
            what = "category of the run's behavior" if spec.kind is ObservationKind.CATEGORICAL else str(spec.dtype)
            raise BadSensorData(f"has a value that is not a {what}", wrong)
        converted: NDArray[Any] = whole.astype(spec.dtype)
        return converted


def _channels_first(spec: ObservationSpec) -> tuple[int, ...]:
    shape = spec.shape
    return (shape[2], shape[0], shape[1]) if spec.layout is ImageLayout.HWC else shape


def _layout(shape: tuple[int, ...], first: observation_pb2.ObservationProto) -> ImageLayout | None:
    """Returns the file's order of a picture's axes, or the order in the run's shape if the file gives none."""
    try:
        if any(first.dimension_properties):
            return wire_layout(first, "")
    except BadSpec as error:
        raise BadSensorData(str(error), 0) from None
    channels_last = tuple(first.shape) == (shape[1], shape[2], shape[0]) and tuple(first.shape) != shape
    return ImageLayout.HWC if channels_last else ImageLayout.CHW


def _range(spec: ObservationSpec) -> tuple[int, Any]:
    """Returns the smallest and the largest whole number of an element; the largest may differ between elements."""
    if spec.kind is ObservationKind.CATEGORICAL:
        return 0, np.asarray(spec.categories) - 1
    if spec.dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(spec.dtype).min), int(np.iinfo(spec.dtype).max)


def _rows(wrong: NDArray[np.bool_]) -> int | None:
    """Returns the first row with a true value, or None."""
    rows = wrong.reshape(len(wrong), -1).any(axis=1)
    return int(rows.argmax()) if rows.any() else None


def channel_mapping(channels: int) -> list[int]:
    """Returns the picture's channel for each channel of the files; unused channels of the last file are -1."""
    return [*range(channels), *[-1] * (-channels % CHANNELS_PER_FILE)]


def encode(picture: NDArray[np.uint8]) -> bytes:
    """Returns a picture, uint8 [C, H, W], as one PNG file per three channels."""
    channels, height, width = picture.shape
    files = []
    for first in range(0, channels, CHANNELS_PER_FILE):
        part = picture[first : first + CHANNELS_PER_FILE]
        # Each line begins with the number of its filter; 0 means no filter.
        lines = np.zeros((height, 1 + CHANNELS_PER_FILE * width), np.uint8)
        pixels = lines[:, 1:].reshape(height, width, CHANNELS_PER_FILE)
        pixels[..., : len(part)] = part.transpose(1, 2, 0)
        size = struct.pack(">II", width, height) + _RGB_8_BIT
        data = zlib.compress(lines.tobytes(), _COMPRESSION_LEVEL)
        files.append(SIGNATURE + _part(b"IHDR", size) + _part(b"IDAT", data) + _part(b"IEND", b""))
    return b"".join(files)


def _part(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
