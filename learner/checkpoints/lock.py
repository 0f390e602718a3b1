"""One learner in one run folder."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import structlog

from learner.common.exits import ExitCode, UserError

LOCK_NAME = ".lock"

_TRIES = 5
_TRY_SECONDS = 0.05

log = structlog.get_logger(__name__)


class FolderLock:
    """Held from construction to `release`, or to the death of the process, however it dies.

    The lock is on an open file, not on the existence of one, so nothing has to be cleaned up after a crash.

    Args:
        folder: the run folder; it exists.

    Raises:
        UserError: another process holds it.
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _take(self._descriptor)
        except OSError as error:
            self._refuse_or_go_on(folder, error)
            return
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode("ascii"))

    @staticmethod
    def is_held(folder: Path) -> bool:
        """Says whether a learner runs in a folder; False where that cannot be told (no locks, not readable)."""
        try:
            descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.EWOULDBLOCK
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        """Lets others in. Calling it again does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _refuse_or_go_on(self, folder: Path, error: OSError) -> None:
        if self._descriptor is None or error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            # Some network file systems have no locks; that must not forbid results on them.
            log.warning("the run folder cannot be locked, so start no second learner in it", folder=str(folder))
            return
        holder = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
        self.release()
        who = f"another learner (process {holder})" if holder.isdecimal() else "another learner"
        message = f"{who} is running in {folder}: stop it first, or choose another --run-id"
        raise UserError(ExitCode.RUN_FOLDER_EXISTS, message)


def _take(descriptor: int) -> None:
    """Locks a file; whoever looks whether a run is running holds it for a moment, so once is not enough."""
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or not tries_left:
                raise
        time.sleep(_TRY_SECONDS)
