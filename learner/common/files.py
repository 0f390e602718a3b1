"""Files that are whole or not there: what every part of the learner writes with."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

TEMPORARY_PREFIX = ".tmp-"
"""How unfinished files begin; one that is left over belongs to a process that was killed."""

_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)
"""What file systems answer that cannot flush a folder (some network ones); the file itself is flushed all the same."""


class WriteFailed(Exception):  # noqa: N818 - it says what happened
    """A file could not be written; what was there before is as it was.

    Args:
        path: the file.
        error: what the operating system said.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.reason = error.strerror or str(error)
        super().__init__(f"cannot write {path}: {self.reason}; what was there before is untouched")


@contextlib.contextmanager
def atomic_file(path: Path, *, keep: Path | None = None) -> Iterator[BinaryIO]:
    """Opens a new file that takes the place of ``path`` when the block ends, and disappears when it raises.

    The bytes are on the disk before the name changes, and the name is before this returns: whoever opens ``path``, after
    a crash too, finds the old file or the new one, never a part.

    Args:
        path: the file.
        keep: the name under which the file that is replaced stays, if there is one.

    Raises:
        WriteFailed: the disk is full, the folder cannot be written, ...
    """
    temporary = _temporary(path.parent)
    try:
        # Not tempfile.mkstemp: its files can be read by their owner alone, and others read results.
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if keep is not None and path.exists():
            _keep(path, keep)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise WriteFailed(path, error) from error
    finally:
        _forget(temporary)


def write_file(path: Path, data: bytes, *, keep: Path | None = None) -> None:
    """Puts ``data`` in the place of ``path``, whole or not at all; see `atomic_file`.

    Raises:
        WriteFailed: it cannot be written.
    """
    with atomic_file(path, keep=keep) as stream:
        stream.write(data)


def open_regular(path: Path, flags: int = os.O_RDONLY, buffering: int = -1) -> BinaryIO:
    """Opens a file; a pipe or device in its place, which might never answer or end, is an error.

    Args:
        path: the file.
        flags: those of ``os.open``; with ``O_RDWR`` it can be written to as well, with ``O_WRONLY`` only that.
        buffering: as in ``open``.

    Raises:
        OSError: there is no such file, or it is of another kind.
    """
    mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}[flags & os.O_ACCMODE]
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    # The mode truncates nothing here: only `open` with a name does.
    return cast("BinaryIO", os.fdopen(descriptor, mode, buffering))


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Returns what a file holds.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than that.
    """
    with open_regular(path) as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        if size_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"has {size_bytes} bytes, more than {max_bytes}", str(path))
        return stream.read(size_bytes)


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to the disk, where its file system can.

    Raises:
        OSError: the disk failed.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def remove_leftovers(folder: Path) -> None:
    """Removes unfinished files of killed processes; call it only where nobody else can be writing."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError):
            path.unlink()


def _temporary(folder: Path) -> Path:
    return folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def _keep(path: Path, keep: Path) -> None:
    """Gives a file a second name, so that there is a file at ``path`` at every moment."""
    second = _temporary(path.parent)
    try:
        second.hardlink_to(path)
        second.replace(keep)
    except OSError:  # a file system without links: for a moment there is no file at ``path``
        path.replace(keep)
    finally:
        _forget(second)


def _forget(temporary: Path) -> None:
    """Removes what a failure may have left; a folder that is gone or read-only refuses that, too."""
    with contextlib.suppress(OSError):
        temporary.unlink()
