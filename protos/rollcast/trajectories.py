"""Stops 3 and 5 of a step's path: converts between chunks of experience and messages.

The form of a chunk (names, roles, types, shapes, counts, enum ranges) is checked here; a fault of form ends the stream.
`find_data_fault` checks the values afterwards; a fault of data becomes a rejection inside an ack.
"""

from collections.abc import Mapping
from typing import Any, Final

from rollcast import limits
from rollcast.chunk_checks import (
    check_form,
    check_message,
    check_ranges,
    check_required,
    check_rows,
    decode_discarded,
    decode_game_record,
)
from rollcast.chunks import Chunk, GameRecord
from rollcast.columns import ColumnForm, column_forms
from rollcast.enums import ColumnRole, member
from rollcast.errors import MalformedChunk
from rollcast.faults import find_data_fault
from rollcast.specs import BehaviorSpec
from rollcast.tensors import decode, encode
from rollcast.v1 import session_pb2, trajectory_pb2

__all__ = ["Chunk", "decode_chunk", "decode_header", "encode_chunk", "find_data_fault"]


_NUMBERS: Final = (
    *("sequence", "generation", "behavior_index", "team", "base_version", "produced_steps", "ghost_steps"),
    *("segments", "rows", "episodes", "agents", "lockstep_round"),
)


def encode_chunk(chunk: Chunk, *, compress: frozenset[str] = frozenset()) -> trajectory_pb2.Chunk:
    """Encodes a chunk.

    Args:
        chunk: The chunk; only its element types are checked.
        compress: Names of columns to try to compress (bytes of pictures).

    Raises:
        TypeError: A column has an element type without a wire form.
        KeyError: A column has no role.
    """
    return trajectory_pb2.Chunk(
        **_numbers(chunk),
        discarded=[session_pb2.ReasonCount(reason=reason, steps=n) for reason, n in sorted(chunk.discarded.items())],
        age_us=round(chunk.age_seconds * 1e6),
        columns=[
            trajectory_pb2.Column(
                name=name,
                role=chunk.roles[name],  # type: ignore[arg-type]
                tensor=encode(array, compress=name in compress),
            )
            for name, array in chunk.columns.items()
        ],
        stat_keys=chunk.stat_keys,
        opponents=chunk.opponents,
        game_record=None if chunk.game_record is None else encode_game_record(chunk.game_record),
    )


def _numbers(chunk: Chunk | trajectory_pb2.Chunk) -> dict[str, Any]:
    """Returns the numbers that a chunk and its message have under the same names."""
    return {name: getattr(chunk, name) for name in _NUMBERS}


def encode_game_record(record: GameRecord) -> trajectory_pb2.GameRecord:
    """Encodes a game record."""
    return trajectory_pb2.GameRecord(
        match=record.match,
        game=record.game,
        first_team=record.first_team,
        result=record.result,
        moves="\n".join(record.moves),
    )


def decode_chunk(
    message: trajectory_pb2.Chunk,
    spec: BehaviorSpec,
    *,
    max_bytes: int,
    memory_size: int = 0,
    memory_stride: int = 0,
) -> Chunk:
    """Decodes a chunk and checks its complete form.

    An enum value of 0 that means the same as 1 (for example, as TRAIN) is replaced by 1.

    Args:
        message: The received message.
        spec: The behavior that the chunk names.
        max_bytes: Largest size of all columns together, after unpacking, in bytes.
        memory_size: Numbers of memory per agent; 0 = none.
        memory_stride: Rows between two records of memory; 0 = none.

    Returns:
        The chunk, with read-only arrays that share the message's bytes.

    Raises:
        MalformedChunk: The first fault of form.
    """
    chunk = decode_header(message)
    forms = column_forms(spec, memory_size if memory_stride else 0)
    _decode_columns(message, chunk, forms, max_bytes)
    check_required(chunk, forms)
    check_rows(chunk, memory_stride)
    check_ranges(chunk)
    return chunk


def decode_header(message: trajectory_pb2.Chunk) -> Chunk:
    """Returns a chunk without its columns, and checks everything that needs no column.

    Raises:
        MalformedChunk: The first fault of form.
    """
    check_message(message)
    return Chunk(
        **_numbers(message),
        discarded=decode_discarded(message),
        age_seconds=message.age_us * 1e-6,
        stat_keys=tuple(message.stat_keys),
        opponents=tuple(message.opponents),
        game_record=decode_game_record(message),
    )


def _decode_columns(
    message: trajectory_pb2.Chunk, chunk: Chunk, forms: Mapping[str, ColumnForm], max_bytes: int
) -> None:
    """Decodes each column within the remaining `max_bytes`, and checks its form."""
    left_bytes = max_bytes
    for column in message.columns:
        name = column.name
        if not limits.COLUMN_NAME_PATTERN.fullmatch(name):
            raise MalformedChunk(f"column name {name[:80]!r} does not match {limits.COLUMN_NAME_PATTERN.pattern}")
        if name in chunk.columns:
            raise MalformedChunk(f"column {name} appears twice")
        role = member(ColumnRole, column.role)
        if role is None or role is ColumnRole.UNSPECIFIED:
            raise MalformedChunk(f"column {name}: role {column.role} is unknown")
        array = decode(column.tensor, max_bytes=left_bytes, what=f"column {name}")
        left_bytes -= array.nbytes
        check_form(name, role, array, forms.get(name))
        chunk.columns[name] = array
        chunk.roles[name] = role
