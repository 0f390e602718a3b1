"""Small JSON files that a reader never sees half written."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def as_json(value: object) -> object:
    """Returns a value as JSON can hold it: NaN and infinities become null, what JSON lacks becomes text."""
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
    """Writes a value as indented JSON: a temporary file beside it, to disk, then renamed into place.

    Raises:
        OSError: the folder is missing, full, or may not be written to; the old file is then still there.
    """
    text = json.dumps(as_json(value), indent=2, allow_nan=False) + "\n"
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)  # mkstemp lets nobody else read, and this is meant to be read
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
