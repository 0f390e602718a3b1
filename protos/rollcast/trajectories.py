"""Chunks of experience <-> messages: stops 3 and 5 of the way of a step.

The form of a chunk (names, roles, types, shapes, counts, enum ranges) is checked here; a breach ends the stream. What
the numbers say (`find_data_fault`) is checked afterwards; a breach is a rejection inside an ack.
"""

from collections.abc import Mapping

from rollcast import limits
from rollcast.chunk_checks import (
    check_form,
    check_message,
    check_ranges,
    check_required,
    check_rows,
    decode_discarded,
)
from rollcast.chunks import Chunk
from rollcast.columns import ColumnForm, column_forms
from rollcast.enums import ActionSource, ColumnRole, GroupEnd, HoldReason, Purpose, SegmentEnd, StatAggregation, member
from rollcast.errors import MalformedChunk
from rollcast.faults import find_data_fault
from rollcast.specs import BehaviorSpec
from rollcast.tensors import decode, encode
from rollcast.v1 import session_pb2, trajectory_pb2

__all__ = [
    "ActionSource",
    "Chunk",
    "ColumnRole",
    "GroupEnd",
    "HoldReason",
    "Purpose",
    "SegmentEnd",
    "StatAggregation",
    "decode_chunk",
    "encode_chunk",
    "find_data_fault",
]


def encode_chunk(chunk: Chunk, *, compress: frozenset[str] = frozenset()) -> trajectory_pb2.Chunk:
    """Encodes a chunk.

    Args:
        chunk: what to send; not checked beyond the element types.
        compress: names of columns worth an attempt at compression (bytes of pictures).

    Raises:
        TypeError: a column has an element type without a wire form.
        KeyError: a column has no role.
    """
    return trajectory_pb2.Chunk(
        sequence=chunk.sequence,
        generation=chunk.generation,
        behavior_index=chunk.behavior_index,
        team=chunk.team,
        base_version=chunk.base_version,
        produced_steps=chunk.produced_steps,
        discarded=[session_pb2.ReasonCount(reason=reason, steps=n) for reason, n in sorted(chunk.discarded.items())],
        ghost_steps=chunk.ghost_steps,
        age_us=round(chunk.age_seconds * 1e6),
        segments=chunk.segments,
        rows=chunk.rows,
        episodes=chunk.episodes,
        agents=chunk.agents,
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
        lockstep_round=chunk.lockstep_round,
    )


def decode_chunk(
    message: trajectory_pb2.Chunk,
    spec: BehaviorSpec,
    *,
    max_bytes: int,
    memory_size: int = 0,
    memory_stride: int = 0,
) -> Chunk:
    """Decodes a chunk and checks its whole form.

    Enum values that stand for another one ("the same as TRAIN") are replaced with it.

    Args:
        message: what came.
        spec: the behavior that the chunk names.
        max_bytes: largest size of all columns together, after unpacking.
        memory_size: numbers of memory an agent; 0 = none.
        memory_stride: rows between two records of memory; 0 = none.

    Returns:
        The chunk, with read-only arrays that share the message's bytes.

    Raises:
        MalformedChunk: the first breach of form.
    """
    check_message(message)
    chunk = Chunk(
        sequence=message.sequence,
        generation=message.generation,
        behavior_index=message.behavior_index,
        team=message.team,
        base_version=message.base_version,
        produced_steps=message.produced_steps,
        discarded=decode_discarded(message),
        ghost_steps=message.ghost_steps,
        age_seconds=message.age_us * 1e-6,
        segments=message.segments,
        rows=message.rows,
        episodes=message.episodes,
        agents=message.agents,
        stat_keys=tuple(message.stat_keys),
        opponents=tuple(message.opponents),
        lockstep_round=message.lockstep_round,
    )
    forms = column_forms(spec, memory_size if memory_stride else 0)
    _decode_columns(message, chunk, forms, max_bytes)
    check_required(chunk, forms)
    check_rows(chunk, memory_stride)
    check_ranges(chunk)
    return chunk


def _decode_columns(
    message: trajectory_pb2.Chunk, chunk: Chunk, forms: Mapping[str, ColumnForm], max_bytes: int
) -> None:
    """Decodes each column within what is left of `max_bytes`, and checks it against its form."""
    left_bytes = max_bytes
    for column in message.columns:
        name = column.name
        if not limits.COLUMN_NAME_PATTERN.fullmatch(name):
            raise MalformedChunk(f"column name {name[:80]!r} does not match {limits.COLUMN_NAME_PATTERN.pattern}")
        if name in chunk.columns:
            raise MalformedChunk(f"column {name} is there twice")
        role = member(ColumnRole, column.role)
        if role is None or role is ColumnRole.UNSPECIFIED:
            raise MalformedChunk(f"column {name}: role {column.role} is unknown")
        array = decode(column.tensor, max_bytes=left_bytes, what=f"column {name}")
        left_bytes -= array.nbytes
        check_form(name, role, array, forms.get(name))
        chunk.columns[name] = array
        chunk.roles[name] = role
