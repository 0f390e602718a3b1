"""Reads and replaces files that a user names: regular files only, because a pipe or device may block or never end."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

OPEN_FLAGS: Final[int] = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
"""Flags of ``os.open`` for binary files: it does not block, makes no terminal the process's own, and children do not inherit the file."""
_PIECE_BYTES: Final = 1 << 16


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Returns the content of a file. A pipe or device in its place, which may block or never end, is an error.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is larger than `max_bytes`.
    """
    with open(path, "rb", opener=_open_regular) as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        # A read allocates what it may get, and the limit is far above the size of most files.
        pieces, left = [], max_bytes + 1
        while (
            left > 0
            and size_bytes <= max_bytes
            and (piece := stream.read(min(left, max(size_bytes + 1, _PIECE_BYTES))))
        ):
            pieces.append(piece)
            left -= len(piece)
    size_bytes = max(size_bytes, max_bytes + 1 - left)
    if size_bytes > max_bytes:
        raise OSError(errno.EFBIG, f"it has {size_bytes} bytes; the limit is {max_bytes}", str(path))
    return b"".join(pieces)


def overwrite(path: Path, data: bytes) -> None:
    """Writes a file in place, and creates it if it is missing.

    Raises:
        OSError: The file cannot be written, or is not a regular file.
    """
    descriptor = _open_regular(str(path), os.O_WRONLY | os.O_CREAT)
    with os.fdopen(descriptor, "wb") as stream:
        stream.truncate()
        stream.write(data)


def replaceable(path: Path) -> Path:
    """Returns the file that takes the place of `path` when it is renamed: `path`, or the regular file to which it links.

    Raises:
        OSError: Something other than a regular file is there, such as a device, a pipe or a link to one.
    """
    try:
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):
            path = path.resolve(strict=True)
            kind = path.lstat().st_mode
        elif stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.EINVAL, "it is a link to no file", str(path)) from None
        return path
    except RuntimeError:  # Python 3.11 and 3.12 report a loop of links so
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def _open_regular(path: str, flags: int) -> int:
    """Opens a regular file; a pipe in its place does not block."""
    descriptor = os.open(path, flags | OPEN_FLAGS, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor
