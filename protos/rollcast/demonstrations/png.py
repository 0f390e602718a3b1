"""Encodes pictures as consecutive PNG files of three channels each, as Unity's cameras do."""

import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rollcast.unity.pictures import CHANNELS_PER_FILE, SIGNATURE

_COMPRESSION_LEVEL: Final = 6
_RGB_8_BIT: Final = bytes((8, 2, 0, 0, 0))
"""Bit depth, colour type, and the only defined compression, filter and order (PNG specification 11.2.2)."""


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
