"""Writes files completely or not at all, for every part of the learner."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from rollcast.files import replaceable

from learner.shared.platform import make_private, open_descriptor, replace_file

TEMPORARY_PREFIX = ".tmp-"
"""Prefix of unfinished files; a remaining one belongs to a process that was killed."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a write for which the disk has no room, or that it did not take."""
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)
"""Errors of file systems that cannot flush a folder (some network ones); the file itself is still flushed."""


class WriteFailed(Exception):  # noqa: N818 - it says what happened
    """Raised if a file could not be written; an earlier version is unchanged.

    Args:
        path: Path of the file.
        error: Error of the operating system.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.reason = error.strerror or str(error)
        room = "make room, or " if error.errno in NO_ROOM else ""
        self.advice = f"{room}choose another folder with --results-dir"
        super().__init__(f"cannot write {path}: {self.reason}; the earlier file is unchanged")


@contextlib.contextmanager
def atomic_file(path: Path, *, keep: Path | None = None, private: bool = False) -> Iterator[BinaryIO]:
    """Opens a new file that replaces ``path`` when the block ends, and is removed if the block raises.

    The bytes are on disk before the file is renamed, and the new name is on disk before this function returns. A reader
    of ``path`` finds the old file or the new one, never a part, even after a crash.

    Args:
        path: Path of the file.
        keep: Path under which the replaced file is kept, if there is one.
        private: Whether only the owner may read the file, where files have such modes.

    Raises:
        WriteFailed: The write failed, for example because the disk is full or the folder is read-only.
    """
    temporary = _temporary(path.parent)
    try:
        # Not tempfile.mkstemp: only the owner could read its files, and other users read results.
        with temporary.open("xb") as stream:
            if private:
                make_private(stream.fileno())  # before the file has any content
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if keep is not None and path.exists():
            _keep(path, keep)
        replace_file(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise WriteFailed(path, error) from error
    finally:
        _forget(temporary)


def write_file(path: Path, data: bytes, *, keep: Path | None = None, private: bool = False) -> None:
    """Replaces ``path`` with a file that holds ``data``, completely or not at all; see `atomic_file`.

    Raises:
        WriteFailed: The file cannot be written.
    """
    with atomic_file(path, keep=keep, private=private) as stream:
        stream.write(data)


def write_output(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replaces a file that a user named, as `write_file`. A device or a pipe in its place is not replaced.

    Raises:
        WriteFailed: The file cannot be written, or something other than a file is there.
    """
    try:
        target = replaceable(path)
    except OSError as error:
        raise WriteFailed(path, error) from error
    write_file(target, data, private=private)


def open_regular(path: Path, flags: int = os.O_RDONLY, buffering: int = -1, *, follow_links: bool = True) -> BinaryIO:
    """Opens a regular file. A pipe or device in its place, which might block forever, is an error.

    Args:
        path: Path of the file.
        flags: Flags of ``os.open``; ``O_RDWR`` makes the file writable too, ``O_WRONLY`` makes it write-only.
        buffering: As in ``open``.
        follow_links: With False, a symbolic link is an error.

    Raises:
        OSError: The file does not exist or is not a regular file.
    """
    descriptor, mode = regular_descriptor(path, flags, follow_links=follow_links)
    # The mode truncates nothing here; only `open` with a name does.
    return cast("BinaryIO", os.fdopen(descriptor, mode, buffering))


def regular_descriptor(path: Path, flags: int, *, follow_links: bool) -> tuple[int, str]:
    """Returns the descriptor of a regular file, and the mode for ``os.fdopen``; arguments and errors as for `open_regular`."""
    descriptor, mode = open_descriptor(path, flags, follow_links=follow_links)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor, mode


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to disk, if its file system can.

    Raises:
        OSError: The disk failed.
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
    """Removes unfinished files of killed processes; call it only while no other process can write."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError):
            path.unlink()


def _temporary(folder: Path) -> Path:
    return folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def _keep(path: Path, keep: Path) -> None:
    """Gives a file a second name, so that `path` always exists."""
    second = _temporary(path.parent)
    try:
        second.hardlink_to(path)
        replace_file(second, keep)
    except OSError:  # a file system without links: `path` is missing for a moment
        replace_file(path, keep)
    finally:
        _forget(second)


def _forget(temporary: Path) -> None:
    """Removes what a failure left; a folder that is gone or read-only may refuse this too."""
    with contextlib.suppress(OSError):
        temporary.unlink()
