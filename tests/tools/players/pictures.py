"""Pictures: the task is to find the bright half of an image, as floats or PNG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.unity.communicator_objects import observation_pb2

from tests.tools.players.simulation import Floats, Outcome, Simulation, Whole

SIDE = 20
"""The smallest that the default encoder takes."""


class Pictures(Simulation):
    """Agents that must say which half of an image is bright.

    Args:
        agents: How many.
        png: Pictures come as PNG files and not as floats.
        channels_last: As packages before 3.0.0 send them.
    """

    branches = (2,)

    def __init__(self, agents: int = 4, *, png: bool = True, channels_last: bool = False) -> None:
        super().__init__(agents)
        self._png, self._channels_last = png, channels_last
        self._bright = np.zeros(agents, np.int64)

    def _begin(self, agent: int) -> None:
        """Draws the first image."""
        self._bright[agent] = self._generator.integers(2)

    def observe(self, agent: int) -> Sequence[observation_pb2.ObservationProto]:
        """Returns a dark image with one bright half."""
        pixels = np.full((SIDE, SIDE, 3), 16, np.uint8)
        half = slice(SIDE // 2, None) if self._bright[agent] else slice(0, SIDE // 2)
        pixels[:, half] = (240, 200, 160)
        return [picture(pixels, png=self._png, channels_last=self._channels_last)]

    def advance(self, agents: Whole, continuous: Floats, discrete: Whole) -> Outcome:
        """Rewards answers and draws the next image."""
        rewards = (discrete[:, 0] == self._bright[agents]).astype(np.float64)
        self._steps[agents] += 1
        self._bright[agents] = self._generator.integers(2, size=len(agents))
        return Outcome(rewards, self._steps[agents] >= 10)


def picture(
    pixels: NDArray[np.uint8], *, png: bool, channels_last: bool, name: str = "CameraSensor"
) -> observation_pb2.ObservationProto:
    """Returns an observation of rank 3 of uint8 pixels [H, W, 3]."""
    height, width, channels = pixels.shape
    shape, properties = (
        ([height, width, channels], [2, 2, 1]) if channels_last else ([channels, height, width], [1, 2, 2])
    )
    observation = observation_pb2.ObservationProto(name=name, shape=shape, dimension_properties=properties)
    if png:
        observation.compression_type = observation_pb2.PNG
        observation.compressed_data = encode_png(pixels)
        observation.compressed_channel_mapping.extend(range(channels))
    else:
        ordered: NDArray[Any] = pixels if channels_last else pixels.transpose(2, 0, 1)
        observation.float_data.data.extend((ordered.ravel() / 255.0).tolist())
    return observation


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Returns a PNG file of uint8 pixels [H, W, 3] (RFC 2083: 8 bits, true color, no filter)."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, content) for kind, content in parts)


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
