"""Reads files that a user names."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Returns the content of a file. A pipe or device in its place, which may block or never end, is an error.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger than `max_bytes`.
    """
    with open(path, "rb", opener=_open_at_once) as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        size_bytes = max(found.st_size, len(content))
        raise OSError(errno.EFBIG, f"it has {size_bytes} bytes; the limit is {max_bytes}", str(path))
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file; a pipe in its place does not block."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
