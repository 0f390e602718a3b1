"""Writes what happens to each chunk to a file, for debugging: ``ROLLCAST_HISTORY=DIR``.

Each process writes one JSON object a line, with one write each, before the effect is visible to any other process. Lines
of one process are therefore in the order of events, also after SIGKILL. The checker of ``tests/nightly/chaos/checker`` reads the
files of all processes of a run and reports what should never be.

A chunk is named by ``[session, sequence, generation]``, and its content by the digest of its columns. Sessions appear as
hashes, because who knows the id of a session can act as its actor.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from rollcast.chunks import Chunk
from rollcast.enums import ColumnRole

VARIABLE: Final = "ROLLCAST_HISTORY"
"""Environment variable with the folder of the files; nothing is written without it."""
OWNER_VARIABLE: Final = "ROLLCAST_HISTORY_OWNER"
"""Environment variable with the id of a learner's service, for the process of its trainers."""
DIGEST_BYTES: Final = 8
_ROW_ROLES: Final = (ColumnRole.STEP, ColumnRole.FINAL, ColumnRole.MEMORY)
# The learner replaces an unspecified value of these by the value that means the same, and drops the version offsets of chunks
# of an earlier start.
_REPLACED: Final = frozenset({"purpose", "action_source", "group_end", "version_offset"})

ChunkName: TypeAlias = tuple[str, int, int]
"""Session, sequence and generation of a chunk."""


class History:
    """The history of one process. Any thread may write; several instances may write to one file.

    Args:
        path: The file; created if it does not exist.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, **fields: Any) -> None:
        """Writes one event with the monotonic time in seconds.

        Raises:
            OSError: The file cannot be written; the history would be incomplete.
        """
        line = json.dumps({"event": event, "at": round(time.monotonic(), 6), **fields}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    @staticmethod
    def chunk(session_id: str, sequence: int, generation: int) -> ChunkName:
        """Returns the name of a chunk."""
        return session_name(session_id), sequence, generation


def open_history(name: str) -> History | None:
    """Opens the history of a process; None if none is wanted.

    Args:
        name: Name of the file without its suffix; unique among all processes of a run.

    Raises:
        OSError: The file cannot be opened.
    """
    folder = os.environ.get(VARIABLE, "")
    return History(Path(folder) / f"{name}.jsonl") if folder else None


def open_learner_history(generation: int) -> History | None:
    """Opens the history of a start of a learner; None if none is wanted.

    Service and trainers append to one file, so that its lines are in the order of events: a process writes before it sends.

    Args:
        generation: Number of the start.

    Raises:
        OSError: The file cannot be opened.
    """
    return open_history(f"learner-{generation}-{os.environ.get(OWNER_VARIABLE) or os.getpid()}")


@lru_cache(maxsize=4096)
def session_name(session_id: str) -> str:
    """Returns the name of a session in histories, from which its id cannot be computed."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def digest_of(chunk: Chunk) -> str:
    """Returns the BLAKE2b-64 of the columns that are trained: names, types, shapes and values."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name, array in sorted(chunk.columns.items()):
        if chunk.roles[name] in _ROW_ROLES and name not in _REPLACED:
            stored = array.astype(array.dtype.newbyteorder("<"), copy=False)
            found.update(f"{name} {stored.dtype.str} {stored.shape};".encode())
            found.update(stored.tobytes())
    return found.hexdigest()


def digest_of_books(ledger: Mapping[str, Any], sessions: Mapping[str, Any]) -> str:
    """Returns the BLAKE2b-64 of the books in a run state, by which the run state is named."""
    text = json.dumps([ledger, sessions], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def oldest_versions(chunk: Chunk) -> list[int]:
    """Returns the oldest policy version of the rows of each segment."""
    if not chunk.segments:
        return []
    lengths = chunk.columns["length"].astype(np.int64)
    versions = np.full(chunk.rows, chunk.base_version, np.int64)
    offsets = chunk.columns.get("version_offset")
    if offsets is not None:
        versions += offsets
    oldest: list[int] = np.minimum.reduceat(versions, np.cumsum(lengths) - lengths).tolist()
    return oldest
