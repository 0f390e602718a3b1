"""Tests the count of a chunk's fields before parsing."""

from __future__ import annotations

import pytest
from rollcast.field_counts import has_too_many_chunk_fields
from rollcast.limits import MAX_CHUNK_FIELDS, MIB, UNCOUNTED_BYTES
from rollcast.v1 import session_pb2, tensor_pb2, trajectory_pb2

CHUNK, COLUMN, SHAPE, GROUP = b"\x12", b"\x6a", b"\x10", b"\x0b"
"""Tags: the chunk of a request, a column of a chunk, a number, and the start of a group."""


def framed(body: bytes) -> bytes:
    """Returns a request with a chunk of these bytes."""
    size, length = len(body), b""
    while size >= 0x80:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return CHUNK + length + bytes([size]) + body


def chunk(columns: int, column_bytes: int) -> bytes:
    """Returns a request with a well-formed chunk."""
    tensor = tensor_pb2.Tensor(shape=[1] * 8, data=b"x" * column_bytes)
    message = trajectory_pb2.Chunk(
        sequence=2**40,
        age_us=12345,
        rows=300,
        columns=[trajectory_pb2.Column(name="obs/x", tensor=tensor)] * columns,
        stat_keys=["key"] * 1024,
        opponents=["name"] * 256,
        discarded=[session_pb2.ReasonCount(reason="a", steps=1)] * 64,
    )
    return trajectory_pb2.UploadRequest(chunk=message).SerializeToString()


@pytest.mark.parametrize(("columns", "column_bytes"), [(256, 16), (256, 16_000), (1, 4 * MIB)])
def test_the_largest_honest_chunks_pass(columns: int, column_bytes: int) -> None:
    """A chunk that uses every limit passes."""
    assert not has_too_many_chunk_fields(chunk(columns, column_bytes))


@pytest.mark.parametrize(
    "request_bytes",
    [
        framed((COLUMN + b"\x00") * 2 * MIB),
        (CHUNK + b"\x00") * 2 * MIB,
        framed((COLUMN + b"\x00") * MAX_CHUNK_FIELDS) * 5,
        framed((SHAPE + b"\x01") * MIB),
        framed((b"\x80\x80\x01" + b"\x01") * MIB),
        framed(GROUP * 4 * MIB),
    ],
    ids=["columns", "chunks", "parts of a chunk", "numbers", "large field numbers", "groups"],
)
def test_small_fields_in_great_number_are_refused(request_bytes: bytes) -> None:
    """Millions of tiny fields are found without a look at each."""
    assert has_too_many_chunk_fields(request_bytes)


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 4 * MIB,
        framed(b"\xff" * 4 * MIB),
        framed(COLUMN + b"\xff" * 4 * MIB),
        framed(b"x" * UNCOUNTED_BYTES)[:-9],
    ],
)
def test_malformed_data_ends_the_count(raw: bytes) -> None:
    """Numbers without an end, and lengths beyond the data, neither raise nor take long."""
    has_too_many_chunk_fields(raw)


def test_small_requests_are_not_counted() -> None:
    """Up to `UNCOUNTED_BYTES` any number of fields passes: parsing them costs little."""
    assert not has_too_many_chunk_fields(framed((COLUMN + b"\x00") * 8000))
