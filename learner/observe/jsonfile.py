"""Small JSON files that a reader never sees half written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from learner.common.files import write_file


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
    """Writes a value as indented JSON, whole or not at all.

    Raises:
        WriteFailed: the folder is missing, full, or may not be written to; the old file is then still there.
    """
    write_file(path, (json.dumps(as_json(value), indent=2, allow_nan=False) + "\n").encode())
