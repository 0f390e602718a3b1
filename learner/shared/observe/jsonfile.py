"""Writes JSON files that are never seen half written, and files that grow by whole lines."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from learner.shared.files import open_regular, write_file
from learner.shared.platform import make_private

_BLOCK_BYTES: Final = 65536


def as_json(value: object) -> object:
    """Converts a value for JSON: NaN and infinities become null, unsupported types become text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [as_json(item) for item in value]
    return str(value)


def write_json(path: Path, value: object) -> None:
    """Writes a value as indented JSON, completely or not at all.

    Raises:
        WriteFailed: The folder is missing, full or not writable; the old file is unchanged.
    """
    write_file(path, (json.dumps(as_json(value), indent=2, allow_nan=False) + "\n").encode())


class AppendFile:
    """Appends to a file, each piece at once and completely or not at all. Belongs to one thread at a time.

    An incomplete last line, as a crash of the machine may leave, is removed, so that the file stays readable.

    Args:
        path: Path of the file; created with its folder if missing.
        private: Whether only the owner may read the file.

    Raises:
        OSError: The file cannot be opened, or the path is not a file.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: BinaryIO = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, buffering=0)
        try:
            if private:
                make_private(self._file.fileno())  # before the file has any content
            size_bytes = self._file.seek(0, os.SEEK_END)
            self._end = _end_of_lines(path, size_bytes)
            if self._end < size_bytes:
                self._file.truncate(self._end)
        except OSError:
            self._file.close()
            raise

    @property
    def size_bytes(self) -> int:
        """Size of the file, in bytes."""
        return self._end

    def append(self, data: bytes) -> None:
        """Adds whole lines.

        Raises:
            OSError: The write failed, for example because the disk is full; nothing was added.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            raise
        self._end += len(data)

    def close(self) -> None:
        """Closes the file; safe to repeat."""
        with contextlib.suppress(OSError):  # every piece was written, or its failure reported
            self._file.close()


def _end_of_lines(path: Path, size_bytes: int) -> int:
    """Returns the length of a file up to its last whole line; searches from the end, because files may be large."""
    with open_regular(path) as file:
        end = size_bytes
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0
