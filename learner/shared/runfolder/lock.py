"""Locks on folders: one learner in a run folder, and one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import structlog
from filelock import lock_descriptor

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import regular_descriptor
from learner.shared.platform import keep_from_readers

LOCK_NAME = ".lock"

_TRIES = 5
_LOOKS = 2
_TRY_SECONDS = 0.05
_MAX_BYTES = 80
_NO_FILE = frozenset({errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENXIO})
"""Errors of opening a link, a folder, a pipe or a socket."""

log = structlog.get_logger(__name__)


class FolderLock:
    """A lock held from construction to `release`, or to the end of the process, however it ends.

    The lock is on an open file, not on the existence of one, so a crash leaves nothing to clean up.

    Args:
        folder: The existing run folder.

    Raises:
        UserError: Another process holds the lock, or the file is no lock of this folder.
        OSError: The folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        descriptor = _open_to_take(folder / LOCK_NAME)
        self._descriptor: int | None = descriptor
        if not _is_lock_of(descriptor, folder):  # the content of any other file must stay
            self.release()
            raise _not_ours(folder / LOCK_NAME, "it is not a lock of this folder")
        keep_from_readers(descriptor)
        try:
            is_taken = _take(descriptor, _TRIES)
        except OSError:
            # Some network file systems have no locks; a run must be possible there too.
            log.warning("run_folder_not_locked", folder=str(folder), action="do not start a second learner in it")
            is_taken = True
        if not is_taken:
            holder = _holder(descriptor)
            self.release()
            message = f"{holder} is running in {folder}: stop it first, or choose another --run-id"
            raise UserError(ExitCode.RUN_FOLDER_EXISTS, message)
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        # A line break first: on Windows other processes cannot read the first byte while the lock is held.
        # The numbers of the file and the folder distinguish them from a copy, which has others.
        file, place = os.fstat(descriptor).st_ino, folder.stat().st_ino
        os.write(descriptor, f"\n{os.getpid()}\n{file}\n{place}\n".encode("ascii"))

    @classmethod
    def is_held(cls, folder: Path) -> bool:
        """Returns whether a learner runs in a folder; False if unknown."""
        return cls.state(folder) is True

    @staticmethod
    def state(folder: Path) -> bool | None:
        """Returns whether a learner runs in a folder; None if unknown (no lock file, no locks, not readable)."""
        try:
            descriptor = _open_to_look(folder / LOCK_NAME)
        except OSError:
            return None
        try:
            # A copy by hard links has the same file, and so the lock of the learner of the original.
            is_shared = os.fstat(descriptor).st_nlink > 1 and _is_of_another(descriptor, folder)
            return not is_shared and not _take(descriptor, _LOOKS)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    @staticmethod
    def is_of_another_folder(folder: Path) -> bool:
        """Returns whether no learner has had a run folder in this place: it was copied, or moved from another file system.

        A folder that is moved within its file system is the same folder. An empty lock, as after a power failure, does not tell.
        """
        try:
            descriptor = _open_to_look(folder / LOCK_NAME)
        except FileNotFoundError:  # a copy without hidden files, or a backup
            return True
        except OSError:
            return False
        try:
            return _is_of_another(descriptor, folder)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Releases the lock. Calling it again does nothing."""
        descriptor, self._descriptor = self._descriptor, None  # before the close, as a signal may call this again
        if descriptor is not None:
            os.close(descriptor)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lets one process at a time into the block, if the folder can be locked; not on Windows and some network disks."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            held.callback(os.close, descriptor)
            lock_descriptor(descriptor)
        yield


def _open_to_take(path: Path) -> int:
    """Opens a lock, and creates it if it is missing. Follows no link, whose target would be another's file.

    Raises:
        UserError: Something else is in its place.
        OSError: The folder cannot be written.
    """
    try:
        return regular_descriptor(path, os.O_RDWR | os.O_CREAT, follow_links=False)[0]
    except OSError as error:
        if error.errno in _NO_FILE or path.is_symlink():
            raise _not_ours(path, "it is a link, or no regular file") from None
        raise


def _open_to_look(path: Path) -> int:
    """Opens a lock to inspect it; for writing if allowed, because a lock over NFS needs it.

    Raises:
        OSError: The lock does not exist or cannot be read.
    """
    try:
        return regular_descriptor(path, os.O_RDWR, follow_links=False)[0]
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        return regular_descriptor(path, os.O_RDONLY, follow_links=False)[0]


def _not_ours(path: Path, why: str) -> UserError:
    return UserError(
        ExitCode.RUN_FILE, f"{path} cannot be the lock of a learner: {why}; remove it, or choose another --run-id"
    )


def _is_lock_of(descriptor: int, folder: Path) -> bool:
    """Returns whether a file holds nothing, or what a lock holds; one with several names must be of this folder."""
    words, found = _words(descriptor), os.fstat(descriptor)
    is_lock = found.st_size <= _MAX_BYTES and all(word.isdecimal() for word in words)
    return is_lock and (found.st_nlink <= 1 or words[2:] == [str(folder.stat().st_ino)])


def _is_of_another(descriptor: int, folder: Path) -> bool:
    """Returns whether a lock, by its numbers, was copied with its folder; False for an empty one."""
    numbers = (os.fstat(descriptor).st_ino, folder.stat().st_ino)
    return any(word != str(number) for word, number in zip(_words(descriptor)[1:], numbers, strict=False))


def _take(descriptor: int, tries: int) -> bool:
    """Locks a file. Retries, because a process that checks whether a learner runs holds the lock for a moment.

    Raises:
        OSError: The file system has no locks.
    """
    for tries_left in range(tries - 1, -1, -1):
        if lock_descriptor(descriptor, blocking=False):
            return True
        if tries_left:
            time.sleep(_TRY_SECONDS)
    return False


def _holder(descriptor: int) -> str:
    """Returns a description of the process that holds a lock."""
    number = next(iter(_words(descriptor)), "")
    return f"another learner (process {number})" if number.isdecimal() else "another learner"


def _words(descriptor: int) -> list[str]:
    """Returns the content of a lock: the process that took it last, and the numbers of the file and the folder then."""
    os.lseek(descriptor, 1, os.SEEK_SET)
    # Zeros are there where power failed before the content was on disk.
    content = os.read(descriptor, _MAX_BYTES).replace(b"\0", b" ")
    return content.decode("ascii", "replace").split()
