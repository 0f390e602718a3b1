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

from learner.common.exits import ExitCode, UserError
from learner.common.platform import open_descriptor

LOCK_NAME = ".lock"

_TRIES = 5
_LOOKS = 2
_TRY_SECONDS = 0.05
_MAX_BYTES = 64

log = structlog.get_logger(__name__)


class FolderLock:
    """A lock held from construction to `release`, or to the end of the process, however it ends.

    The lock is on an open file, not on the existence of one, so a crash leaves nothing to clean up.

    Args:
        folder: The existing run folder.

    Raises:
        UserError: Another process holds the lock.
        OSError: The folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        descriptor, _ = open_descriptor(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        self._descriptor: int | None = descriptor
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
        # A line break first: on Windows other processes cannot read the first byte while the lock is held.
        # The number of the file distinguishes it from a copy, which has another one.
        os.write(descriptor, f"\n{os.getpid()}\n{os.fstat(descriptor).st_ino}\n".encode("ascii"))

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
            return not _take(descriptor, _LOOKS)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    @staticmethod
    def is_of_another_folder(folder: Path) -> bool:
        """Returns whether no learner ever had a run folder, which is then a copy of the one that its learner had.

        A folder that is moved within its file system is the same folder. Locks of older releases do not tell.
        """
        try:
            descriptor = _open_to_look(folder / LOCK_NAME)
        except FileNotFoundError:  # a copy without hidden files, or a backup
            return True
        except OSError:
            return False
        try:
            words = _words(descriptor)
            return len(words) > 1 and words[1] != str(os.fstat(descriptor).st_ino)
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


def _open_to_look(path: Path) -> int:
    """Opens a lock to inspect it; for writing if allowed, because a lock over NFS needs it.

    Raises:
        OSError: The lock does not exist or cannot be read.
    """
    try:
        return open_descriptor(path, os.O_RDWR)[0]
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        return open_descriptor(path, os.O_RDONLY)[0]


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
    """Returns the content of a lock: the process that took it last, and the number of the file then."""
    os.lseek(descriptor, 1, os.SEEK_SET)
    return os.read(descriptor, _MAX_BYTES).decode("ascii", "replace").split()
