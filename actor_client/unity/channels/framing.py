"""Records in the `side_channel` bytes of an exchange, and the primitives that their payloads consist of.

One record is the channel's UUID in .NET's byte order (`uuid.UUID.bytes_le`), the length of the payload as little-endian
int32, and the payload. Records follow one another without a frame around them.
"""

import struct
from collections.abc import Iterable
from typing import Final
from uuid import UUID

UUID_BYTES: Final = 16
HEADER_BYTES: Final = UUID_BYTES + 4
MAX_RECORDS: Final = 65536
"""Most records in a message. Players send a few; a large message could hold millions and would block all players."""
MAX_INT32: Final = 2**31 - 1
MIN_INT32: Final = -(2**31)
MAX_FLOAT32: Final = 3.4028234663852886e38

_INT32: Final = struct.Struct("<i")
_FLOAT32: Final = struct.Struct("<f")


class BadSideChannel(Exception):  # noqa: N818 - names what is bad
    """The bytes of a side channel are malformed; the message is one line.

    Args:
        message: The fault.
        intact: The valid records before the fault.
    """

    def __init__(self, message: str, intact: Iterable[tuple[UUID, bytes]] = ()) -> None:
        super().__init__(message)
        self.intact = tuple(intact)


def pack(records: Iterable[tuple[UUID, bytes]]) -> bytes:
    """Returns records, each a channel and a payload, as bytes."""
    parts: list[bytes] = []
    for channel, payload in records:
        parts += (channel.bytes_le, _INT32.pack(len(payload)), payload)
    return b"".join(parts)


def unpack(data: bytes) -> list[tuple[UUID, bytes]]:
    """Returns the channel and the payload of each record.

    Raises:
        BadSideChannel: A length is negative or goes past the end, or there are more than `MAX_RECORDS`; the records
            before it are in `intact`.
    """
    records: list[tuple[UUID, bytes]] = []
    place, size = 0, len(data)
    while place < size:
        if len(records) == MAX_RECORDS:
            raise BadSideChannel(f"a message has more than {MAX_RECORDS} records; send fewer at a time", records)
        if size - place < HEADER_BYTES:
            raise BadSideChannel(
                f"{size - place} bytes are left after {len(records)} records; a record has at least {HEADER_BYTES}",
                records,
            )
        (length,) = _INT32.unpack_from(data, place + UUID_BYTES)
        begin = place + HEADER_BYTES
        if not 0 <= length <= size - begin:
            raise BadSideChannel(
                f"record {len(records)} claims a payload of {length} bytes; {size - begin} are left", records
            )
        records.append((UUID(bytes_le=data[place : place + UUID_BYTES]), data[begin : begin + length]))
        place = begin + length
    return records


class Reader:
    """Reads primitives from a payload, one after another.

    Args:
        payload: The payload of one record.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._place = 0

    def int32(self) -> int:
        """Reads an int32.

        Raises:
            BadSideChannel: The payload is too short.
        """
        value: int = _INT32.unpack_from(self._payload, self._advance(4, "a whole number"))[0]
        return value

    def float32(self) -> float:
        """Reads a float32.

        Raises:
            BadSideChannel: The payload is too short.
        """
        value: float = _FLOAT32.unpack_from(self._payload, self._advance(4, "a number"))[0]
        return value

    def string(self) -> str:
        """Reads a text: its length in bytes, then ASCII. Other bytes are decoded as UTF-8 where possible.

        Raises:
            BadSideChannel: The length is negative or goes past the end.
        """
        length = self.int32()
        if length < 0:
            raise BadSideChannel(f"a text claims {length} bytes")
        begin = self._advance(length, "a text")
        return self._payload[begin : begin + length].decode("utf-8", "replace")

    def _advance(self, count: int, what: str) -> int:
        """Advances by a number of bytes and returns the position of the first."""
        place, left = self._place, len(self._payload) - self._place
        if count > left:
            raise BadSideChannel(f"{what} of {count} bytes goes past the end: {left} bytes are left")
        self._place = place + count
        return place


def int32(value: int) -> bytes:
    """Encodes an int32; a value out of range is clamped."""
    return _INT32.pack(min(max(value, MIN_INT32), MAX_INT32))


def float32(value: float) -> bytes:
    """Encodes a float32; a finite value out of range is clamped."""
    if value in (float("inf"), float("-inf")) or value != value:  # noqa: PLR0124 - NaN
        return _FLOAT32.pack(value)
    return _FLOAT32.pack(min(max(value, -MAX_FLOAT32), MAX_FLOAT32))


def string(text: str) -> bytes:
    """Encodes a text; players read ASCII, so every other character becomes a question mark."""
    data = text.encode("ascii", "replace")
    return _INT32.pack(len(data)) + data
