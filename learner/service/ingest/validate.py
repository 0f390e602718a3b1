"""Stop 5 of a step's path: validates a chunk. Faults of form end the stream; faults of data only reject the chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.errors import MalformedChunk
from rollcast.faults import NOT_FINITE
from rollcast.limits import MAX_DECODED_CHUNK_BYTES, MAX_STEPS
from rollcast.trajectories import Chunk, decode_chunk, decode_header, find_data_fault
from rollcast.v1 import trajectory_pb2

from learner.link.to_front import NOT_TRAINING
from learner.service.ingest.behaviors import Behavior
from learner.service.ingest.session import MAX_AGENTS

LARGEST: Final = 1e15
"""Largest accepted magnitude. Losses, normalizers and the optimizer square these values in float32, whose largest
number is 3.4e38.
"""
_SQUARED: Final = ("obs/", "final_obs/", "reward", "group_reward", "prev_reward", "memory")


def find_excess(chunk: Chunk) -> tuple[str, str] | None:
    """Finds the first observation, reward or memory above `LARGEST`, in a chunk without infinite numbers.

    Returns:
        The ledger's reason, the same as for infinite numbers, and a detail for the log; None if there is none.
    """
    for name, array in chunk.columns.items():
        if name.startswith(_SQUARED) and array.dtype.kind == "f" and array.size and _exceeds(array):
            row = int(np.argwhere(np.abs(array) > LARGEST)[0][0])
            return NOT_FINITE, f"column {name}, row {row}: a value beyond {LARGEST:g}, whose square is not finite"
    return None


def _exceeds(array: NDArray[Any]) -> bool:
    """Returns whether a value exceeds `LARGEST` in magnitude, without copying the array."""
    return bool(array.max() > LARGEST or array.min() < -LARGEST)


GENERATION: Final = "generation"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A chunk whose rows are refused; the stream continues.

    Attributes:
        chunk: The chunk as received.
        reason: Reason in the ledger.
        steps: Number of rows.
        detail: Text for logs.
    """

    chunk: Chunk
    reason: str
    steps: int
    detail: str


def check_header(message: trajectory_pb2.Chunk, encoded_bytes: int, max_bytes: int) -> None:
    """Checks the size and the counters of a chunk.

    Args:
        message: The received message.
        encoded_bytes: Its size, in bytes.
        max_bytes: Largest size allowed, in bytes.

    Raises:
        MalformedChunk: The chunk is too large, or a counter is out of bounds.
    """
    if encoded_bytes > max_bytes:
        raise MalformedChunk(
            f"a chunk of {encoded_bytes} bytes; at most {max_bytes} (ChunkLimits.max_chunk_bytes) are "
            "allowed: seal chunks earlier",
            metadata={"chunk_bytes": str(encoded_bytes), "max_chunk_bytes": str(max_bytes)},
        )
    if max(message.produced_steps, message.ghost_steps) > MAX_STEPS or message.agents > MAX_AGENTS:
        raise MalformedChunk(
            f"counters of {message.produced_steps} produced steps, {message.ghost_steps} ghost steps and "
            f"{message.agents} agents; at most {MAX_STEPS} steps and {MAX_AGENTS} agents are allowed"
        )


def judge_generation(message: trajectory_pb2.Chunk, generation: int) -> Rejected | None:
    """Returns why all rows of a chunk are refused for their generation, before a column is unpacked; None if they are not.

    Args:
        message: The received message.
        generation: Generation of the learner.

    Raises:
        MalformedChunk: Its rows acted under a generation that does not exist yet, or its header is invalid.
    """
    if message.generation > generation:
        raise MalformedChunk(f"generation {message.generation} does not exist yet; the learner's is {generation}")
    has_no_policy = message.rows == 0 and message.generation == 0  # statistics or counters only
    if message.generation == generation or has_no_policy:
        return None
    detail = f"acted under generation {message.generation}; the learner's is {generation}"
    return Rejected(decode_header(message), GENERATION, message.rows, detail)


def decode(message: trajectory_pb2.Chunk, behavior: Behavior) -> Chunk:
    """Decodes a chunk and checks its form.

    Raises:
        MalformedChunk: The form of the chunk is invalid; the sender has a bug.
    """
    return decode_chunk(
        message,
        behavior.spec,
        max_bytes=MAX_DECODED_CHUNK_BYTES,
        memory_size=behavior.memory_size,
        memory_stride=behavior.memory_stride,
    )


def judge(chunk: Chunk, behavior: Behavior, newest_version: int | None) -> Rejected | None:
    """Returns why the rows of a well-formed chunk of this generation are refused; None if they may be queued.

    Args:
        chunk: The decoded chunk.
        behavior: Behavior of the chunk.
        newest_version: Newest published version; None before the first.

    Raises:
        MalformedChunk: Its rows acted under a version that does not exist yet.
    """
    _check_version(chunk, newest_version, behavior.name)
    if not takes(behavior, chunk):
        return Rejected(chunk, NOT_TRAINING, chunk.rows, f"{behavior.name} is not being trained")
    fault = find_data_fault(chunk, behavior.spec) or find_excess(chunk)
    if fault is not None:
        reason, detail = fault
        return Rejected(chunk, reason, chunk.rows, detail)
    return None


def takes(behavior: Behavior, chunk: Chunk) -> bool:
    """Returns whether the trainers take a chunk: the behavior is trained, or the chunk holds only records of matches.

    A behavior that is no longer trained plays on as an opponent.
    """
    return behavior.training or (behavior.plays_matches and not chunk.rows)


def _check_version(chunk: Chunk, newest_version: int | None, behavior: str) -> None:
    if not chunk.rows:
        return
    offset = chunk.columns.get("version_offset")
    version = chunk.base_version + (int(offset.max()) if offset is not None else 0)
    if newest_version is None:
        raise MalformedChunk(
            f"rows acted under version {version}, but no policy of {behavior} has been published yet: step only "
            "after a policy has arrived",
            metadata={"version": str(version)},
        )
    if version > newest_version:
        raise MalformedChunk(
            f"rows acted under version {version}, but the newest published version is {newest_version}: check "
            "base_version and version_offset",
            metadata={"version": str(version), "newest_version": str(newest_version)},
        )
