"""Reads and writes side channels as a player does."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

ENGINE: Final = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
PARAMETERS: Final = UUID("534c891e-810f-11ea-a9d0-822485860400")
STATISTICS: Final = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")
UNKNOWN: Final = UUID("00000000-1111-2222-3333-444444444444")
AVERAGE, MOST_RECENT, SUM, HISTOGRAM = range(4)


def records(data: bytes) -> Iterator[tuple[UUID, bytes]]:
    """Yields channel and payload of each record."""
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from("<i", data, offset + 16)
        yield UUID(bytes_le=data[offset : offset + 16]), data[offset + 20 : offset + 20 + length]
        offset += 20 + length


def record(channel: UUID, payload: bytes) -> bytes:
    """Returns a record."""
    return channel.bytes_le + struct.pack("<i", len(payload)) + payload


def statistic(key: str, value: float, aggregation: int) -> bytes:
    """Returns a record of the statistics channel."""
    name = key.encode("ascii")
    return record(STATISTICS, struct.pack("<i", len(name)) + name + struct.pack("<fi", value, aggregation))


def told(data: bytes) -> list[dict[str, Any]]:
    """Returns what was told to the player, for its log."""
    return [_told(channel, payload) for channel, payload in records(data)]


def _told(channel: UUID, payload: bytes) -> dict[str, Any]:
    if channel == PARAMETERS:
        (length,) = struct.unpack_from("<i", payload)
        key, rest = payload[4 : 4 + length].decode("ascii"), payload[4 + length :]
        (kind,) = struct.unpack_from("<i", rest)
        if kind == 0:
            return {"parameter": key, "value": struct.unpack_from("<f", rest, 4)[0]}
        seed, sampler = struct.unpack_from("<ii", rest, 4)
        return {"parameter": key, "seed": seed, "sampler": sampler, "rest": rest[12:].hex()}
    if channel == ENGINE:
        (kind,) = struct.unpack_from("<i", payload)
        layout = {0: "<ii", 2: "<f"}.get(kind, "<i")
        return {"engine": kind, "values": list(struct.unpack_from(layout, payload, 4))}
    return {"channel": str(channel), "bytes": len(payload)}
