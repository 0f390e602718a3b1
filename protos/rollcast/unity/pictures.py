"""Reads PNG observations: consecutive files of three channels each, whose channels form one picture.

Pillow decodes; it is imported at the first PNG, because players without pictures do not need it. It only gets files of
the announced size without other than picture data, so that no file costs more than its picture.
"""

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rollcast.extras import install

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
CHANNELS_PER_FILE: Final = 3
MAX_FILES: Final = 1024
"""Files of one observation; each needs a decoder."""
MAX_PIXELS: Final = 2**25
"""Pixels of one file, 5792 x 5792: twice the size of a chunk of bytes with one channel, after unpacking."""
MAX_DECODED_BYTES: Final = 2**28
"""Bytes of all files of one observation; one that fills a chunk needs at most three times 64 MiB."""
MAX_PARTS: Final = 2**16
"""Parts of one file; each costs a check."""

_PICTURE_PARTS: Final = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
_HEADER: Final = struct.Struct(">I4s")
_SIZE: Final = struct.Struct(">II")
_CHECKSUM_BYTES: Final = 4
_SIZE_PART_BYTES: Final = 13

Bytes = NDArray[np.uint8]


class BadPicture(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """The bytes are not the announced picture; the text gives the reason, after "observation x"."""


@dataclass(frozen=True, slots=True)
class _Sorting:
    """The mapping of the files' channels to those of the picture.

    Attributes:
        files: Number of files.
        sources: For each channel of the picture, the channels of the files that are averaged, numbered across files.
        plain: Channel i of the only file is channel i.
    """

    files: int
    sources: tuple[tuple[int, ...], ...]
    plain: bool


class PictureReader:
    """Reads the pictures of one sensor.

    Args:
        channels: Channels of the picture.
        height: Height in pixels.
        width: Width in pixels.
    """

    __slots__ = ("_channels", "_height", "_mapping", "_sorting", "_width")

    def __init__(self, channels: int, height: int, width: int) -> None:
        self._channels = channels
        self._height = height
        self._width = width
        self._mapping: list[int] | None = None
        self._sorting = _Sorting(0, (), plain=False)

    def read(self, data: bytes, mapping: Sequence[int], into: Bytes) -> None:
        """Decodes one observation.

        Args:
            data: PNG files, one after another.
            mapping: The picture's channel for each channel of the files; sources of one channel are averaged, negative
                ones dropped. Empty for players before API version 1.2: a picture of one channel is then the average of
                the first file, and any other picture has the first channels.
            into: Output, uint8 [channels, height, width]; channels without a source become 0.

        Raises:
            BadPicture: The bytes cannot be decoded.
        """
        if self._mapping is None or mapping != self._mapping:
            self._sorting = _sorted(mapping, self._channels)
            self._mapping = list(mapping)
        sorting = self._sorting
        files = [_decode(file) for file in _files(data, sorting.files, self._height, self._width)]
        if sorting.plain:
            into[...] = files[0].transpose(2, 0, 1)
            return
        for channel, sources in enumerate(sorting.sources):
            found = [files[source // CHANNELS_PER_FILE][..., source % CHANNELS_PER_FILE] for source in sources]
            into[channel] = _average(found) if found else 0


def _sorted(mapping: Sequence[int], channels: int) -> _Sorting:
    if not mapping:
        mapping = (0,) * CHANNELS_PER_FILE if channels == 1 else range(channels)
    files = -(-len(mapping) // CHANNELS_PER_FILE)
    if files > MAX_FILES:
        raise BadPicture(
            f"has a channel mapping of {len(mapping)} entries; at most {MAX_FILES * CHANNELS_PER_FILE} are allowed"
        )
    if max(mapping) >= channels:
        raise BadPicture(f"maps a channel of its PNG to channel {max(mapping)}; the picture has {channels}")
    sources: list[list[int]] = [[] for _ in range(channels)]
    for source, target in enumerate(mapping):
        if target >= 0:
            sources[target].append(source)
    plain = files == 1 and sources == [[0], [1], [2]]
    return _Sorting(files, tuple(map(tuple, sources)), plain)


def _average(sources: Sequence[Bytes]) -> Bytes:
    """Returns the average of [height, width] channels, rounded half up."""
    if len(sources) == 1:
        return sources[0]
    total = sources[0].astype(np.uint32)
    for source in sources[1:]:
        total += source
    rounded: Bytes = ((total + len(sources) // 2) // len(sources)).astype(np.uint8)
    return rounded


def _files(data: bytes, count: int, height: int, width: int) -> Iterator[bytes]:
    """Yields the first files, each reduced to its picture data."""
    decoded_bytes = count * CHANNELS_PER_FILE * height * width
    if height * width > MAX_PIXELS or decoded_bytes > MAX_DECODED_BYTES:
        raise BadPicture(
            f"needs {count} PNG files of {height} x {width} pixels; at most {MAX_PIXELS} pixels each and "
            f"{MAX_DECODED_BYTES} bytes together are allowed"
        )
    at = 0
    for number in range(count):
        if not data.startswith(SIGNATURE, at):
            raise BadPicture(
                f"needs {count} consecutive PNG files; "
                + (f"only {number} arrived" if at == len(data) else f"none begins at byte {at} of {len(data)}")
            )
        parts, end = _parts(data, at + len(SIGNATURE))
        size = _SIZE.unpack_from(data, at + len(SIGNATURE) + _HEADER.size)
        if size != (width, height):
            raise BadPicture(f"has a PNG of {size[1]} x {size[0]} pixels (height x width), not {height} x {width}")
        yield SIGNATURE + b"".join(parts)
        at = end


def _parts(data: bytes, at: int) -> tuple[list[memoryview], int]:
    """Returns the parts of the file that begins at a byte, and the position after the file."""
    view, parts = memoryview(data), []
    for number in range(MAX_PARTS):
        if at + _HEADER.size > len(data):
            break
        length, kind = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + length + _CHECKSUM_BYTES
        is_size = (kind, length) == (b"IHDR", _SIZE_PART_BYTES)
        # Pillow would take the size of a second header, which nothing has compared.
        if end > len(data) or (not is_size if number == 0 else kind == b"IHDR"):
            break
        if kind in _PICTURE_PARTS:
            parts.append(view[at:end])
        at = end
        if kind == b"IEND":
            return parts, at
    raise BadPicture(f"has a PNG that is cut short or damaged before byte {at} of {len(data)}")


def _decode(file: bytes) -> Bytes:
    """Returns one file as uint8 [height, width, 3]."""
    image_class = _pillow()
    try:
        with image_class.open(io.BytesIO(file), formats=("PNG",)) as image:
            return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    # Pillow's errors for damaged files; it raises SyntaxError for a damaged part.
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error, zlib.error) as error:
        raise BadPicture(f"has a PNG that cannot be decoded: {str(error)[:200]}") from None


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - see the module
    except ImportError:
        raise BadPicture(
            f"is sent as PNG, which needs Pillow; install it ({install('unity')}), or set the sensor's "
            "compression to None"
        ) from None
    return Image
