"""Stop 5 of a step's way: what becomes of a chunk. Faults of form end the stream, faults of data cost the chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.errors import MalformedChunk
from rollcast.faults import NOT_FINITE
from rollcast.limits import MAX_DECODED_CHUNK_BYTES, MAX_STEPS
from rollcast.trajectories import Chunk, decode_chunk, find_data_fault
from rollcast.v1 import trajectory_pb2

from learner.ingest.behaviors import NOT_TRAINING, Behavior
from learner.ingest.session import MAX_AGENTS

LARGEST: Final = 1e15
"""Losses, normalizers and the optimizer square observations, returns and gradients along memories, in float32, whose largest number is 3.4e38."""
_SQUARED: Final = ("obs/", "final_obs/", "reward", "group_reward", "prev_reward", "memory")


def find_excess(chunk: Chunk) -> tuple[str, str] | None:
    """Looks for the first observation, reward or memory beyond `LARGEST`, in a chunk without infinite numbers.

    Returns:
        The ledger's word, which is that of infinite numbers, and a detail for the log; None if there is none.
    """
    for name, array in chunk.columns.items():
        if name.startswith(_SQUARED) and array.dtype.kind == "f" and array.size and _exceeds(array):
            row = int(np.argwhere(np.abs(array) > LARGEST)[0][0])
            return NOT_FINITE, f"column {name}, row {row}: a value beyond {LARGEST:g}, whose square is no number"
    return None


def _exceeds(array: NDArray[Any]) -> bool:
    """Compares without a copy of the column."""
    return bool(array.max() > LARGEST or array.min() < -LARGEST)


GENERATION: Final = "generation"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A chunk whose rows are refused; the stream goes on.

    Attributes:
        chunk: as it came.
        reason: a word of the ledger.
        steps: how many rows.
        detail: for logs.
    """

    chunk: Chunk
    reason: str
    steps: int
    detail: str


def decode(message: trajectory_pb2.Chunk, behavior: Behavior, encoded_bytes: int, max_bytes: int) -> Chunk:
    """Decodes a chunk and checks its form.

    Raises:
        MalformedChunk: a fault of form; the sender has a bug.
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
            f"{message.agents} agents; at most {MAX_STEPS} steps and {MAX_AGENTS} agents are sane"
        )
    return decode_chunk(
        message,
        behavior.spec,
        max_bytes=MAX_DECODED_CHUNK_BYTES,
        memory_size=behavior.memory_size,
        memory_stride=behavior.memory_stride,
    )


def judge(chunk: Chunk, behavior: Behavior, generation: int, newest_version: int | None) -> Rejected | None:
    """Returns why the rows of a chunk of right form are refused; None if they may be queued.

    Args:
        chunk: decoded.
        behavior: its behavior.
        generation: the learner's own.
        newest_version: of the published policies; None before the first.

    Raises:
        MalformedChunk: its rows acted under a generation or version that does not exist yet.
    """
    if chunk.generation > generation:
        raise MalformedChunk(f"generation {chunk.generation} does not exist yet; the learner's is {generation}")
    has_no_policy = chunk.rows == 0 and chunk.generation == 0  # statistics or counters alone
    if chunk.generation < generation and not has_no_policy:
        detail = f"acted under generation {chunk.generation}; the learner's is {generation}"
        return Rejected(chunk, GENERATION, chunk.rows, detail)
    _check_version(chunk, newest_version, behavior.name)
    if not behavior.training:
        return Rejected(chunk, NOT_TRAINING, chunk.rows, f"{behavior.name} is not trained (any more)")
    fault = find_data_fault(chunk, behavior.spec) or find_excess(chunk)
    if fault is not None:
        reason, detail = fault
        return Rejected(chunk, reason, chunk.rows, detail)
    return None


def _check_version(chunk: Chunk, newest_version: int | None, behavior: str) -> None:
    if not chunk.rows:
        return
    offset = chunk.columns.get("version_offset")
    version = chunk.base_version + (int(offset.max()) if offset is not None else 0)
    if newest_version is None:
        raise MalformedChunk(
            f"rows acted under version {version}, and no policy of {behavior} has been published yet: step only once a "
            "policy acts",
            metadata={"version": str(version)},
        )
    if version > newest_version:
        raise MalformedChunk(
            f"rows acted under version {version}, and the newest published one is {newest_version}: check base_version "
            "and version_offset",
            metadata={"version": str(version), "newest_version": str(newest_version)},
        )
