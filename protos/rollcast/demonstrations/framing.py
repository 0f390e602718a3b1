"""The bytes of a demonstration file: a head of fixed size, then messages preceded by their lengths.

Files are untrusted. Before an allocation, each length is compared with the rest of the file and with a bound. The
number of messages within a record is bounded too. One record is in memory at a time.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from rollcast.demonstrations.faults import BadDemonstration
from rollcast.field_counts import read_varint
from rollcast.limits import MIB
from rollcast.unity.communicator_objects.behavior_pb2 import BrainParametersProto
from rollcast.unity.communicator_objects.demonstration_pb2 import AgentInfoActionPairProto, DemonstrationMetaProto
from rollcast.unity.floats import varint

M = TypeVar("M", bound=Message)

HEAD_BYTES: Final = 32
"""Bytes reserved for the first message, which is rewritten when the recording ends."""
BRAIN_POSITION: Final = HEAD_BYTES + 1
API_VERSIONS: Final = (0, 1)
MAX_RECORD_BYTES: Final = 64 * MIB
"""Bytes of one message: as much as a whole chunk after unpacking."""
MAX_NAME_CHARACTERS: Final = 16
"""Characters of a recording's name: with the numbers, the first message must fit its 32 bytes."""

_MAX_LENGTH_BYTES: Final = 5
"""Bytes of a varint that holds a length below 2**32."""
MAX_FIELDS: Final = 131_072
"""Fields of one message and its inner ones. Numbers are packed: a step with 64 observations has a few hundred."""
MIN_FIELD_BYTES: Final = 2
"""Least bytes of a field: a tag, and a number or a length; shorter data cannot exceed the limit."""
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_SIZES: Final = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


class Record(NamedTuple):
    """One decision, or the end of an episode.

    Attributes:
        position: The byte at which it begins.
        size_bytes: Bytes of the whole record.
        pair: Observations and action.
    """

    position: int
    size_bytes: int
    pair: AgentInfoActionPairProto


class DemonstrationFile:
    """An open demonstration file; a context manager.

    Args:
        path: The file.

    Attributes:
        path: The file.
        meta: The head.
        brain: The actions of the behavior.

    Raises:
        BadDemonstration: The file cannot be opened, or is not a demonstration.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = _opened(path)
        try:
            self._size = os.fstat(self._stream.fileno()).st_size
            self.meta = self._head()
            self._stream.seek(BRAIN_POSITION)
            self.brain = self._message(BrainParametersProto, "the description of the behavior")
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def records(self) -> Iterator[Record]:
        """Yields the records in order: as many as the head says, or all if it says none (the recorder was killed).

        Raises:
            BadDemonstration: The file is cut short, or contains an invalid record.
        """
        count = 0
        while self._has_more(count):
            position = self._position()
            pair = self._message(AgentInfoActionPairProto, f"record {count}")
            yield Record(position, self._position() - position, pair)
            count += 1

    def count_records(self) -> int:
        """Returns the number of records; only their lengths are read.

        Raises:
            BadDemonstration: The file is cut short, or contains an invalid record.
        """
        count = 0
        while self._has_more(count):
            self._stream.seek(self._body(f"record {count}"), os.SEEK_CUR)
            count += 1
        return count

    def _has_more(self, count: int) -> bool:
        """Returns whether a record follows after `count` records; the head of an unfinished recording says none.

        Raises:
            BadDemonstration: The head announces more records, but the file ends.
        """
        announced, position = self.meta.number_steps, self._position()
        if not announced:
            return position < self._size
        if count < announced and position >= self._size:
            raise BadDemonstration(
                self.path,
                f"the file ends after {count} records, but its head announces {announced}: it was cut short; copy "
                "it again, or record again",
                position,
            )
        return count < announced

    def _head(self) -> DemonstrationMetaProto:
        if not self._size:
            raise BadDemonstration(self.path, "the file is empty")
        length = self._length("the head")
        if length >= HEAD_BYTES or self._size < BRAIN_POSITION:
            raise BadDemonstration(
                self.path,
                f"this is not a demonstration: its head would have {length} bytes, and at most {HEAD_BYTES - 1} "
                "are allowed",
                0,
            )
        meta = self._parsed(DemonstrationMetaProto, self._stream.read(length), "the head", 0)
        if meta.api_version not in API_VERSIONS:
            raise BadDemonstration(
                self.path, f"the file has version {meta.api_version} of the format; only 0 and 1 can be read", 0
            )
        if meta.number_steps < 0:
            raise BadDemonstration(self.path, f"its head announces {meta.number_steps} records", 0)
        return meta

    def _message(self, kind: type[M], what: str) -> M:
        position = self._position()
        return self._parsed(kind, self._stream.read(self._body(what)), what, position)

    def _body(self, what: str) -> int:
        """Reads and returns the length of a message; checks that the file contains all of it."""
        position = self._position()
        length = self._length(what)
        left = self._size - self._position()
        if length > left:
            raise BadDemonstration(
                self.path,
                f"{what} announces {length} bytes, but {left} follow: the file is cut short or damaged; copy it "
                "again, or record again",
                position,
            )
        if length > MAX_RECORD_BYTES:
            raise BadDemonstration(
                self.path, f"{what} has {length} bytes; at most {MAX_RECORD_BYTES} are allowed", position
            )
        return length

    def _length(self, what: str) -> int:
        """Reads a varint."""
        position, found = self._position(), 0
        for place in range(_MAX_LENGTH_BYTES):
            byte = self._stream.read(1)
            if not byte:
                raise BadDemonstration(
                    self.path, f"the file ends where {what} should begin: it was cut short", position
                )
            found |= (byte[0] & 0x7F) << (7 * place)
            if not byte[0] & 0x80:
                return found
        raise BadDemonstration(self.path, f"the length of {what} cannot be read: the file is damaged", position)

    def _parsed(self, kind: type[M], data: bytes, what: str, position: int) -> M:
        if has_too_many_fields(data, kind):
            raise BadDemonstration(
                self.path, f"{what} has more than {MAX_FIELDS} fields: the file is damaged; record again", position
            )
        try:
            return kind.FromString(data)
        except DecodeError:
            raise BadDemonstration(self.path, f"{what} cannot be read: the file is damaged", position) from None

    def _position(self) -> int:
        return self._stream.tell()


def _opened(path: Path) -> BinaryIO:
    try:
        # Non-blocking, because a pipe in place of the file would block the program for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise BadDemonstration(path, "not a regular file")
        return os.fdopen(descriptor, "rb")
    except OSError as error:
        raise BadDemonstration(path, f"cannot be opened: {error.strerror or error}") from None


def delimited(message: Message) -> bytes:
    """Returns a message preceded by its length."""
    data: bytes = message.SerializeToString()
    return varint(len(data)) + data


def head(name: str, records: int, episodes: int, mean_return: float) -> bytes:
    """Returns the first 32 bytes of a file.

    Args:
        name: Readable name of the recording; cut to fit.
        records: Number of decisions and ends of episodes.
        episodes: Number of ended episodes.
        mean_return: Their mean return.
    """
    plain = "".join(
        character for character in name if character.isascii() and (character.isalnum() or character in "-_")
    )
    meta = DemonstrationMetaProto(
        api_version=API_VERSIONS[-1],
        demonstration_name=plain[:MAX_NAME_CHARACTERS],
        number_steps=records,
        number_episodes=episodes,
        mean_reward=mean_return,
    )
    # Two numbers of ten bytes each do not fit with sixteen characters; the name is cut.
    while len(data := delimited(meta)) > HEAD_BYTES:
        meta.demonstration_name = meta.demonstration_name[:-1]
    return data.ljust(HEAD_BYTES, b"\0")


def has_too_many_fields(data: bytes, message: type[Message], most: int = MAX_FIELDS) -> bool:
    """Returns whether a serialized message has more than `most` fields. Malformed data is left to the parser.

    Args:
        data: The message.
        message: The message's type.
        most: Largest number of fields.
    """
    if len(data) <= most * MIN_FIELD_BYTES:
        return False
    count = 0
    waiting: list[tuple[int, int, Any]] = [(0, len(data), message.DESCRIPTOR)]
    while waiting:
        position, end, kind = waiting.pop()
        while position < end:
            count += 1
            if count > most:
                return True
            tag, position = read_varint(data, position)
            wire = tag & 7
            if wire == _VARINT:
                _, position = read_varint(data, position)
            elif wire == _LENGTH:
                length, position = read_varint(data, position)
                field = kind.fields_by_number.get(tag >> 3)
                if field is not None and field.type == FieldDescriptor.TYPE_MESSAGE:
                    waiting.append((position, min(end, position + length), field.message_type))
                position += length
            else:
                position += _SIZES.get(wire, 0)
    return False
