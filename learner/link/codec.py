"""Encodes the messages of the link as bytes, so that the two sides of a learner can be two processes.

A message is a header (MessagePack, by msgspec) and raw buffers, the bytes of the arrays that the header refers to by number. It is read
as the types that its fields are declared with: no bytes name a class or a function to call.
"""

from __future__ import annotations

import functools
import math
import os
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from rollcast.limits import FRAME_BYTES, MAX_POLICY_BYTES
from rollcast.v1 import policy_pb2

from learner.link.ring import RingReader, RingWriter
from learner.link.to_front import ToFront
from learner.link.to_trainers import ToTrainers
from learner.shared.exits import UserError
from learner.shared.settings.options import RunOptions
from learner.shared.settings.trainer import TrainerSettings

PIECE_BYTES: Final = FRAME_BYTES
"""Largest piece of an encoded message, in bytes: a large policy does not keep the way from other messages."""
MAX_HEADER_BYTES: Final = MAX_POLICY_BYTES + 256 * 2**20
"""Largest header in bytes: that of a policy has its bytes, and the books of very many sessions take some megabytes."""
MAX_BUFFER_BYTES: Final = 2**32
"""Limit of all buffers of a message together, in bytes."""

MESSAGES: Final = (*get_args(ToTrainers), *get_args(ToFront))
"""The types of messages."""
OF_TRAINERS: Final = get_args(ToFront)
"""Those that trainers send. None has settings, whose reading imports what they name: the service takes no others."""
_HEAD: Final = msgspec.msgpack.Decoder(tuple[list[Annotated[int, msgspec.Meta(ge=0, le=MAX_BUFFER_BYTES)]], str])
"""Sizes of the buffers, and name of the type."""
_ARRAY_PLACE: Final = msgspec.msgpack.Decoder(
    tuple[Annotated[int, msgspec.Meta(ge=0)], str, list[Annotated[int, msgspec.Meta(ge=0)]]]
)
"""Number of the buffer, element type and shape."""
_ARRAY_CODE: Final = 1
"""Code of the extension type that stands for an array."""
_UNREADABLE: Final = (DecodeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""What reading damaged bytes raises, msgspec, Protobuf and the constructors of messages' parts."""
_START: Final = struct.Struct("<4sIIQ")
"""Mark, bytes of the header, of its beginning, and of all buffers."""
_MAGIC: Final = b"RCL2"
_RING_START: Final = struct.Struct("<4sIIQQ")
"""Start of a message whose buffers are in a ring: its last number is their position."""
_RING_MAGIC: Final = b"RCR2"
_ALIGNMENT: Final = 64
"""Each buffer begins at a multiple of this, as fast copies of arrays require."""
_SMALL_BYTES: Final = 4096
"""A copy of a smaller array is cheaper than a view of its bytes."""
_DTYPES: Final = "biuf"
_DTYPE: Final = re.compile(f"[<>|][{_DTYPES}][1248]")
"""Kinds of the element types that arrays may have: booleans and numbers."""


class DamagedMessageError(ValueError):
    """The bytes are no message of the link."""


@functools.cache  # of the few names that match; an error is not kept
def _dtype(name: str) -> np.dtype[Any]:
    if _DTYPE.fullmatch(name) is None:  # numpy parses text of other forms as Python
        raise DamagedMessageError(f"{name[:80]!r} is no element type of the link")
    return np.dtype(name)


class Encoded:
    """One encoded message.

    Attributes:
        buffers: The bytes of arrays, in the order of their numbers.
    """

    __slots__ = ("_content", "_extent", "_head", "_header_bytes", "buffers")

    def __init__(self, message: Any) -> None:
        """Encodes a message; its buffers are shared, not copied.

        Raises:
            TypeError: The message holds something that cannot leave its process.
        """
        self.buffers: list[memoryview] = []
        kind = type(message)
        if kind not in MESSAGES:
            raise TypeError(f"{kind.__name__} is no message of the link")
        self._content = msgspec.msgpack.encode(message, enc_hook=self._plain)
        sizes = [buffer.nbytes for buffer in self.buffers]
        self._extent = _extent(sizes)
        self._head = msgspec.msgpack.encode((sizes, kind.__name__))
        self._header_bytes = len(self._head) + len(self._content)

    def pieces(self, most_bytes: int = PIECE_BYTES, ring: RingWriter | None = None) -> Iterator[bytes | memoryview]:
        """Yields the message in pieces of at most a number of bytes; `Assembler` joins them.

        Args:
            most_bytes: Largest piece in bytes.
            ring: Takes the buffers if they are large; waits for room.
        """
        position = None if ring is None else ring.put(self._padded(), self._extent)
        if position is None and _START.size + self._header_bytes + self._extent <= most_bytes:
            yield b"".join(self._parts(None))
            return
        cut: list[bytes | memoryview] = []
        room = most_bytes
        for part in self._parts(position):
            at = 0
            while at < len(part):
                taken = part[at : at + room]
                cut.append(taken)
                at += len(taken)
                room -= len(taken)
                if not room:
                    yield _joined(cut)
                    cut, room = [], most_bytes
        if cut:
            yield _joined(cut)

    def _parts(self, position: int | None) -> Iterator[bytes | memoryview]:
        """Yields the start, the header, and the buffers unless they are in a ring."""
        if position is not None:
            yield _RING_START.pack(_RING_MAGIC, self._header_bytes, len(self._head), self._extent, position)
        else:
            yield _START.pack(_MAGIC, self._header_bytes, len(self._head), self._extent)
        yield self._head
        yield self._content
        if position is None:
            yield from self._padded()

    def _padded(self) -> Iterator[bytes | memoryview]:
        """Yields each buffer and its padding."""
        for buffer in self.buffers:
            yield buffer
            yield bytes(-buffer.nbytes % _ALIGNMENT)

    def _plain(self, value: Any) -> Any:  # noqa: PLR0911 - one line for each type
        """Returns what stands for a value of a type that msgspec does not know."""
        match value:
            case np.ndarray():
                return self._array(value)
            case np.bool_() | np.integer() | np.floating():
                return value.item()
            case np.dtype() if value.kind in _DTYPES:
                return value.str
            case TrainerSettings() | RunOptions():
                return value.model_dump(mode="json")
            case Path():
                return os.fsencode(value)
            case policy_pb2.Assignment():
                return value.SerializeToString()
            case Mapping():  # one that cannot be changed
                return dict(value)
        raise TypeError(f"a {type(value).__name__} cannot be sent over the link")

    def _array(self, value: NDArray[Any]) -> msgspec.msgpack.Ext:
        dtype = value.dtype
        if dtype.kind not in _DTYPES:
            raise TypeError(f"an array of {dtype} cannot be sent over the link")
        if value.nbytes <= _SMALL_BYTES:
            data = memoryview(value.tobytes())
        else:
            sound = value if value.flags.c_contiguous else np.ascontiguousarray(value)
            data = sound.reshape(-1).view(np.uint8).data
        self.buffers.append(data)
        return msgspec.msgpack.Ext(_ARRAY_CODE, msgspec.msgpack.encode((len(self.buffers) - 1, dtype.str, value.shape)))


class Assembler:
    """Joins the pieces of messages, one message after the other.

    The arrays of a message are read-only views of one block of memory, which belongs to the message.

    Args:
        ring: Holds the buffers of large messages; None for a link without one.
        kinds: Types of the messages that may arrive.
    """

    def __init__(self, ring: RingReader | None = None, kinds: Collection[type] = MESSAGES) -> None:
        self._ring = ring
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._start = bytearray()
        self._reader: _Reader | None = None

    @property
    def is_between_messages(self) -> bool:
        """Returns whether no message is incomplete."""
        return not self._start and self._reader is None

    def add(self, piece: bytes | memoryview) -> Any | None:
        """Adds the next piece, and returns the message that it completes; otherwise None.

        Raises:
            DamagedMessageError: The pieces are no message; the assembler cannot be used any more.
        """
        if self._reader is None:
            self._start += piece
            self._reader = self._begin()
        else:
            self._reader.fill(piece)
        if self._reader is None or not self._reader.is_full:
            return None
        reader, self._reader = self._reader, None
        return reader.message()

    def _begin(self) -> _Reader | None:
        """Returns the reader of the message once its header is complete."""
        start = self._start
        if len(start) < _START.size:
            raise DamagedMessageError(
                f"a message begins with {len(start)} bytes, but at least {_START.size} are needed"
            )
        magic, header_bytes, head_bytes, buffer_bytes = _START.unpack_from(start)
        ring = self._ring if magic == _RING_MAGIC and len(start) >= _RING_START.size else None
        if magic != _MAGIC and ring is None:
            raise DamagedMessageError("a message does not begin with the mark of the link")
        if not head_bytes <= header_bytes <= MAX_HEADER_BYTES or buffer_bytes > MAX_BUFFER_BYTES:
            raise DamagedMessageError(f"a message has a header of {header_bytes} and buffers of {buffer_bytes} bytes")
        begin = _START.size if ring is None else _RING_START.size
        end = begin + header_bytes
        if len(start) < end:
            return None
        taken = None if ring is None else _taken(ring, _RING_START.unpack_from(start)[4], buffer_bytes)
        header = memoryview(start)[begin:end]
        reader = _Reader(self._kinds, header[:head_bytes], header[head_bytes:], buffer_bytes, taken)
        reader.fill(start[end:])
        self._start = bytearray()
        return reader


class _Reader:
    """Reads one message: a header, then the content of its buffers.

    Args:
        kinds: Types of the messages that may arrive, by name.
        head: Beginning of the header.
        content: Fields of the message.
        buffer_bytes: Announced size of all buffers in bytes, with their alignment.
        taken: The buffers, if they came another way.

    Raises:
        DamagedMessageError: The header is damaged.
    """

    def __init__(
        self,
        kinds: Mapping[str, type],
        head: memoryview,
        content: memoryview,
        buffer_bytes: int,
        taken: NDArray[np.uint8] | None,
    ) -> None:
        try:
            sizes, name = _HEAD.decode(head)
        except _UNREADABLE as error:
            raise DamagedMessageError(f"a header cannot be read: {error}") from None
        if name not in kinds:
            raise DamagedMessageError(f"{name[:80]!r} is no message of this side of the link")
        self._kind = kinds[name]
        self._content = content
        if _extent(sizes) != buffer_bytes:
            raise DamagedMessageError(f"the buffers take {_extent(sizes)} bytes, but {buffer_bytes} were announced")
        self._sizes = sizes
        self._offsets = list(_offsets(sizes))
        self._memory = np.empty(buffer_bytes, np.uint8) if taken is None else taken
        self._filled = 0 if taken is None else buffer_bytes

    @property
    def is_full(self) -> bool:
        """Returns whether all buffers are complete."""
        return self._filled == len(self._memory)

    def fill(self, piece: bytes | bytearray | memoryview) -> None:
        """Adds the next bytes of the buffers."""
        end = self._filled + len(piece)
        if end > len(self._memory):
            raise DamagedMessageError(f"a message has {end} bytes of buffers, but {len(self._memory)} were announced")
        self._memory[self._filled : end] = np.frombuffer(piece, np.uint8)
        self._filled = end

    def message(self) -> Any:
        """Returns the message.

        Raises:
            DamagedMessageError: The values are no message.
        """
        self._memory.flags.writeable = False
        try:
            return msgspec.msgpack.decode(
                self._content, type=self._kind, dec_hook=self._typed, ext_hook=self._extension
            )
        except DamagedMessageError:
            raise
        except UserError as error:  # a trainer of a package that is not installed here
            raise DamagedMessageError(f"a message cannot be read: {error.message}") from None
        except _UNREADABLE as error:
            raise DamagedMessageError(f"a message cannot be read: {type(error).__name__}: {error}") from None

    def _typed(self, kind: Any, value: Any) -> Any:
        """Returns a value of a type that msgspec does not know, of what stands for it."""
        origin = get_origin(kind) or kind
        if origin is np.ndarray and isinstance(value, np.ndarray):
            return value
        if origin is np.dtype and isinstance(value, str):
            return _dtype(value)
        if origin in {RunOptions, TrainerSettings}:
            return origin.model_validate(value)
        if origin is Path and isinstance(value, bytes):
            return Path(os.fsdecode(value))
        if origin is policy_pb2.Assignment and isinstance(value, bytes):
            return policy_pb2.Assignment.FromString(value)
        raise DamagedMessageError(f"a {type(value).__name__} stands for a {getattr(origin, '__name__', origin)}")

    def _extension(self, code: int, data: memoryview) -> NDArray[Any]:
        """Returns an array."""
        if code != _ARRAY_CODE:
            raise DamagedMessageError("a header has an unknown extension")
        number, name, shape = _ARRAY_PLACE.decode(data)
        if number >= len(self._sizes):
            raise DamagedMessageError("a header names a buffer that does not exist")
        dtype = _dtype(name)
        if math.prod(shape) * dtype.itemsize != self._sizes[number]:
            raise DamagedMessageError(f"an array of {dtype} and shape {shape} has {self._sizes[number]} bytes")
        return np.ndarray(shape, dtype, self._memory, self._offsets[number])


def _taken(ring: RingReader, position: int, extent: int) -> NDArray[np.uint8]:
    """Returns the buffers of a message in the ring."""
    try:
        return ring.take(position, extent)
    except ValueError as error:
        raise DamagedMessageError(str(error)) from None


def _joined(parts: list[bytes | memoryview]) -> bytes | memoryview:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _offsets(sizes: list[int]) -> Iterator[int]:
    """Yields where each buffer begins."""
    at = 0
    for size in sizes:
        yield at
        at += -(-size // _ALIGNMENT) * _ALIGNMENT


def _extent(sizes: list[int]) -> int:
    """Returns the bytes of all buffers with their alignment."""
    return sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
