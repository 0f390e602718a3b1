"""Encodes the messages of the link as bytes, so that the two sides of a learner can be two processes.

A message is a header of plain values (JSON) and raw buffers, the bytes and arrays that the header refers to by number.
Only the types listed here are encoded and decoded: no bytes name a class or a function to call.

In the header, numbers, text, booleans and None stand for themselves. Everything else is a list of a tag and its content,
see `_Reader`.
"""

from __future__ import annotations

import enum
import functools
import itertools
import json
import math
import operator
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from rollcast.chunks import Chunk, GameRecord, GameResult
from rollcast.descriptions import PolicyDescription
from rollcast.enums import (
    AssignmentRole,
    ColumnRole,
    DimensionProperty,
    Distribution,
    Dtype,
    Encoding,
    GroupEnd,
    HoldReason,
    ImageLayout,
    ObservationKind,
    ObservationRole,
    PolicyFormat,
    Purpose,
    SegmentEnd,
    Squash,
)
from rollcast.limits import FRAME_BYTES
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.transforms import ActionTransform
from rollcast.v1 import policy_pb2

from learner.link.control import RequestKind
from learner.link.evaluation import Order
from learner.link.footprint import Footprint
from learner.link.matches import Match, Seat
from learner.link.ring import RingReader, RingWriter
from learner.link.to_front import Pace, ToFront
from learner.link.to_trainers import Actor, ToTrainers
from learner.link.turns import TurnKind
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import BoundAddresses
from learner.shared.observe.behavior_state import BehaviorState, Field, GameView, Metric, TrainerStats
from learner.shared.observe.meters import BehaviorCounts, Buckets, CheckpointCounts, RunCounts
from learner.shared.observe.summary import BehaviorSummary
from learner.shared.observe.view import (
    AwayView,
    Bottleneck,
    GpuUse,
    LessonView,
    LockstepView,
    QuarantineView,
    RunState,
    RunView,
    TroubleView,
)
from learner.shared.policies import PolicyKey, StoredPolicy
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.options import RunOptions
from learner.shared.settings.trainer import TrainerSettings

PIECE_BYTES: Final = FRAME_BYTES
"""Largest piece of an encoded message, in bytes: a large policy does not keep the way from other messages."""
MAX_HEADER_BYTES: Final = 256 * 2**20
"""Largest header in bytes; the books of very many sessions take some megabytes."""
MAX_BUFFER_BYTES: Final = 2**32
"""Limit of all buffers of a message together, in bytes."""

MESSAGES: Final = (*get_args(ToTrainers), *get_args(ToFront))
"""The types of messages."""
_PARTS: Final = (
    *(
        ActionSpec,
        ActionTransform,
        Actor,
        BehaviorCounts,
        BehaviorSpec,
        BehaviorState,
        BehaviorSummary,
        Bottleneck,
        BoundAddresses,
    ),
    *(
        Buckets,
        CheckpointCounts,
        Chunk,
        Field,
        Footprint,
        GameRecord,
        GameView,
        AwayView,
        GpuUse,
        LessonView,
        LockstepView,
        Match,
        Metric,
    ),
    *(
        LoadedRun,
        ObservationSpec,
        Order,
        Pace,
        PolicyDescription,
        PolicyKey,
        QuarantineView,
        RunCounts,
        RunView,
        Seat,
        StoredPolicy,
        TrainerStats,
        TroubleView,
    ),
)
_ENUMS: Final[tuple[type[enum.Enum], ...]] = (
    *(AssignmentRole, ColumnRole, DimensionProperty, Distribution, Dtype, Encoding, ExitCode, GameResult, GroupEnd),
    *(HoldReason, ImageLayout, ObservationKind, ObservationRole, PolicyFormat, Purpose, RequestKind, RunState),
    *(SegmentEnd, Squash, TurnKind),
)
_START: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"RCL1"
_RING_START: Final = struct.Struct("<4sIQQ")
"""Start of a message whose buffers are in a ring: its last number is their position."""
_RING_MAGIC: Final = b"RCR1"
_ALIGNMENT: Final = 64
"""Each buffer begins at a multiple of this, as fast copies of arrays require."""
_SMALL_BYTES: Final = 4096
"""A copy of a smaller array is cheaper than a view of its bytes."""
_in_json: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_KINDS: Final = "biuf"
_DTYPE: Final = re.compile(f"[<>|][{_KINDS}][1248]")
"""Kinds of the element types that arrays may have: booleans and numbers."""


class DamagedMessageError(ValueError):
    """The bytes are no message of the link."""


@functools.cache  # of the few names that match; an error is not kept
def _dtype(name: str) -> np.dtype[Any]:
    if _DTYPE.fullmatch(name) is None:  # numpy parses text of other forms as Python
        raise DamagedMessageError(f"{name[:80]!r} is no element type of the link")
    return np.dtype(name)


def _field_names(record: type) -> tuple[str, ...]:
    if is_dataclass(record):
        return tuple(field.name for field in fields(record))
    names: tuple[str, ...] = record._fields  # type: ignore[attr-defined] # a NamedTuple
    return names


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns what reads all fields of a record at once."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


_NAMES: Final = {record: _field_names(record) for record in (*MESSAGES, *_PARTS)}
_GETTERS: Final = {record: _getter(names) for record, names in _NAMES.items()}
_PLAIN: Final = frozenset({bool, int, float, str, type(None)})
_RECORDS: Final[dict[str, type]] = {record.__name__: record for record in _NAMES}
_ENUM_KINDS: Final = frozenset(_ENUMS)
_ENUM_NAMES: Final = {kind.__name__: kind for kind in _ENUMS}
_MEMBERS: Final = {kind.__name__: {member.value: member for member in kind} for kind in _ENUMS}


class Encoded:
    """One encoded message.

    Attributes:
        header: The plain values.
        buffers: Bytes and arrays, in the order of their numbers.
    """

    __slots__ = ("_extent", "buffers", "header")

    def __init__(self, message: Any) -> None:
        """Encodes a message; its buffers are shared, not copied.

        Raises:
            TypeError: The message holds something that cannot leave its process.
        """
        self.buffers: list[memoryview] = []
        if type(message) not in MESSAGES:
            raise TypeError(f"{type(message).__name__} is no message of the link")
        plain = self._plain(message)
        sizes = [buffer.nbytes for buffer in self.buffers]
        self._extent = _extent(sizes)
        self.header = _in_json([sizes, plain]).encode("ascii")

    def pieces(self, most_bytes: int = PIECE_BYTES, ring: RingWriter | None = None) -> Iterator[bytes | memoryview]:
        """Yields the message in pieces of at most a number of bytes; `Assembler` joins them.

        Args:
            most_bytes: Largest piece in bytes.
            ring: Takes the buffers if they are large; waits for room.
        """
        position = None if ring is None else ring.put(self._padded(), self._extent)
        if position is None and _START.size + len(self.header) + self._extent <= most_bytes:
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
            yield _RING_START.pack(_RING_MAGIC, len(self.header), self._extent, position)
            yield self.header
            return
        yield _START.pack(_MAGIC, len(self.header), self._extent)
        yield self.header
        yield from self._padded()

    def _padded(self) -> Iterator[bytes | memoryview]:
        """Yields each buffer and its padding."""
        for buffer in self.buffers:
            yield buffer
            yield bytes(-buffer.nbytes % _ALIGNMENT)

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        getter = _GETTERS.get(kind)
        if getter is not None:
            return ["o", kind.__name__, *self._plains(getter(value))]
        if kind in _ENUM_KINDS:
            return ["e", kind.__name__, value._value_]
        if kind is dict:
            return self._dict(value)
        if kind is np.ndarray:
            return self._array(value)
        return self._other(value)

    def _plains(self, values: Iterable[Any]) -> list[Any]:
        """Returns the plain form of several values; most are plain, and cost no call."""
        return [each if type(each) in _PLAIN else self._plain(each) for each in values]

    def _dict(self, value: Mapping[Any, Any]) -> list[Any]:
        return ["d", *self._plains(itertools.chain.from_iterable(value.items()))]

    def _other(self, value: Any) -> list[Any]:  # noqa: PLR0911 - one line for each type
        match value:
            case bytes():
                return ["b", self._buffer(memoryview(value))]
            case Mapping():
                return self._dict(value)
            case list():
                return ["l", *self._plains(value)]
            case tuple():
                return ["t", *self._plains(value)]
            case frozenset():
                return ["f", *sorted(value)]
            case np.bool_() | np.integer() | np.floating():
                return ["v", self._plain(value.item())]
            case np.dtype() if value.kind in _KINDS:
                return ["n", value.str]
            case TrainerSettings():
                return ["s", json.dumps(value.model_dump(mode="json"))]
            case RunOptions():
                return ["r", json.dumps(value.model_dump(mode="json"))]
            case Path():
                return ["p", str(value)]
            case policy_pb2.Assignment():
                return ["m", self._buffer(memoryview(value.SerializeToString()))]
        raise TypeError(f"a {type(value).__name__} cannot be sent over the link")

    def _array(self, value: NDArray[Any]) -> list[Any]:
        dtype = value.dtype
        if dtype.kind not in _KINDS:
            raise TypeError(f"an array of {dtype} cannot be sent over the link")
        if value.nbytes <= _SMALL_BYTES:
            data = memoryview(value.tobytes())
        else:
            sound = value if value.flags.c_contiguous else np.ascontiguousarray(value)
            data = sound.reshape(-1).view(np.uint8).data
        return ["a", self._buffer(data), dtype.str, *value.shape]

    def _buffer(self, data: memoryview) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1


class Assembler:
    """Joins the pieces of messages, one message after the other.

    The arrays of a message are read-only views of one block of memory, which belongs to the message.

    Args:
        ring: Holds the buffers of large messages; None for a link without one.
    """

    def __init__(self, ring: RingReader | None = None) -> None:
        self._ring = ring
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
        magic, header_bytes, buffer_bytes = _START.unpack_from(start)
        ring = self._ring if magic == _RING_MAGIC and len(start) >= _RING_START.size else None
        if magic != _MAGIC and ring is None:
            raise DamagedMessageError("a message does not begin with the mark of the link")
        if header_bytes > MAX_HEADER_BYTES or buffer_bytes > MAX_BUFFER_BYTES:
            raise DamagedMessageError(f"a message has a header of {header_bytes} and buffers of {buffer_bytes} bytes")
        begin = _START.size if ring is None else _RING_START.size
        end = begin + header_bytes
        if len(start) < end:
            return None
        taken = None if ring is None else _taken(ring, _RING_START.unpack_from(start)[3], buffer_bytes)
        reader = _Reader(bytes(start[begin:end]), buffer_bytes, taken)
        reader.fill(start[end:])
        self._start = bytearray()
        return reader


class _Reader:
    """Reads one message: a header, then the content of its buffers.

    Args:
        header: The header.
        buffer_bytes: Announced size of all buffers in bytes, with their alignment.
        taken: The buffers, if they came another way.

    Raises:
        DamagedMessageError: The header is damaged.
    """

    def __init__(self, header: bytes, buffer_bytes: int, taken: NDArray[np.uint8] | None) -> None:
        try:
            content = json.loads(header)
        except (ValueError, RecursionError) as error:
            raise DamagedMessageError(f"a header is not JSON: {type(error).__name__}") from None
        if not isinstance(content, list) or len(content) != 2 or not isinstance(content[0], list):
            raise DamagedMessageError("a header is not a pair of sizes and values")
        sizes, self._plain = content
        if not all(type(size) is int and 0 <= size <= MAX_BUFFER_BYTES for size in sizes):
            raise DamagedMessageError("a header has an invalid size of a buffer")
        if _extent(sizes) != buffer_bytes:
            raise DamagedMessageError(f"the buffers take {_extent(sizes)} bytes, but {buffer_bytes} were announced")
        self._sizes: list[int] = sizes
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
            found = self._value(self._plain)
        except DamagedMessageError:
            raise
        except UserError as error:  # a trainer of a package that is not installed here
            raise DamagedMessageError(f"a message cannot be read: {error.message}") from None
        except (ArithmeticError, DecodeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise DamagedMessageError(f"a message cannot be read: {type(error).__name__}: {error}") from None
        if type(found) not in MESSAGES:
            raise DamagedMessageError(f"{type(found).__name__} is no message of the link")
        return found

    def _value(self, plain: Any) -> Any:
        if type(plain) in _PLAIN:
            return plain
        if isinstance(plain, dict):
            raise DamagedMessageError("a header holds an object")
        if not plain or plain[0] not in _READERS:
            raise DamagedMessageError("a header has an unknown tag")
        return _READERS[plain[0]](self, plain[1:])

    def values(self, content: list[Any]) -> list[Any]:
        """Returns the values of a list; most are plain, and cost no call."""
        return [each if type(each) in _PLAIN else self._value(each) for each in content]

    def value(self, content: list[Any]) -> Any:
        """Returns the only value of a list."""
        return self._value(_only(content))

    def _place(self, number: Any) -> int:
        """Returns where a buffer begins."""
        if type(number) is not int or not 0 <= number < len(self._sizes):
            raise DamagedMessageError("a header names a buffer that does not exist")
        return self._offsets[number]

    def content(self, content: list[Any]) -> bytes:
        """Returns the bytes of the only buffer of a list."""
        number = _only(content)
        at = self._place(number)
        return self._memory[at : at + self._sizes[number]].tobytes()

    def array(self, content: list[Any]) -> NDArray[Any]:
        """Returns an array."""
        number, name, *shape = content
        dtype, at = _dtype(name), self._place(number)
        for length in shape:
            if type(length) is not int or length < 0:
                raise DamagedMessageError("an array has an invalid shape")
        if math.prod(shape) * dtype.itemsize != self._sizes[number]:
            raise DamagedMessageError(f"an array of {dtype} and shape {shape} has {self._sizes[number]} bytes")
        return np.ndarray(shape, dtype, self._memory, at)

    def dictionary(self, content: list[Any]) -> dict[Any, Any]:
        """Returns a dictionary, whose keys and values alternate."""
        values = self.values(content)
        return dict(zip(values[::2], values[1::2], strict=True))

    def words(self, content: list[Any]) -> frozenset[str]:
        """Returns a set of text."""
        if not all(isinstance(each, str) for each in content):
            raise DamagedMessageError("a set holds more than text")
        return frozenset(content)

    def member(self, content: list[Any]) -> enum.Enum:
        """Returns a member of an enumeration, or several of flags."""
        name, value = content
        found = _MEMBERS[name].get(value)
        return _ENUM_NAMES[name](value) if found is None else found

    def record(self, content: list[Any]) -> Any:
        """Returns a record."""
        name, *values = content
        record = _RECORDS[name]
        return record(**dict(zip(_NAMES[record], self.values(values), strict=True)))


_READERS: Final[Mapping[str, Callable[[_Reader, list[Any]], Any]]] = {
    "a": _Reader.array,
    "b": _Reader.content,
    "d": _Reader.dictionary,
    "e": _Reader.member,
    "f": _Reader.words,
    "l": _Reader.values,
    "m": lambda reader, content: policy_pb2.Assignment.FromString(reader.content(content)),
    "n": lambda _, content: _dtype(_only(content)),
    "o": _Reader.record,
    "p": lambda _, content: Path(_only(content)),
    "r": lambda _, content: RunOptions.model_validate(json.loads(_only(content))),
    "s": lambda _, content: TrainerSettings.model_validate(json.loads(_only(content))),
    "t": lambda reader, content: tuple(reader.values(content)),
    "v": _Reader.value,
}
"""What makes a value of the content of each tag."""


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


def _only(content: list[Any]) -> Any:
    (value,) = content
    return value
