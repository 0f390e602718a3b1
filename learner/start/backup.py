"""Copies a run while its learner trains."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import sync_folder
from learner.shared.observe.address import ADDRESS_FILE, TRAINERS_FILE
from learner.shared.results import listing
from learner.shared.runfolder.lock import LOCK_NAME, FolderLock
from learner.shared.runfolder.names import GENERATION, RUN_STATE

_PASSES: Final = 5
"""Times that files which changed meanwhile are copied again."""
_PARTIAL: Final = ".partial"
_TIME: Final = r"\d{8}T\d{6}Z"
_LONG_SECONDS: Final = 86400.0
"""Age of an incomplete copy without a lock from which no call makes it."""
_OF_A_PROCESS: Final = frozenset({LOCK_NAME, ADDRESS_FILE, TRAINERS_FILE})
"""Files that are true of a running learner alone."""

_Stamp = tuple[int, int, int]


def back_up(run: Path, target: Path, *, run_id: str = "", keep: int | None = None) -> Path:
    """Copies a run into a folder of its id and the time, readable by its owner only, and returns that folder.

    A learner replaces its files as a whole, and the run state last. Files are copied again until no run state came meanwhile, so
    that the copy is of one moment; what is only added to, as logs, may end earlier. The folder gets its name once it is complete.
    What a killed call left is removed.

    Args:
        run: Folder of the run.
        target: Folder of all copies; made if it is missing.
        run_id: Its id, whose folders the copies get, too, so that runs of one name in different folders are distinct; by default
            the folder's name.
        keep: Copies of this run to keep, the newest ones; None keeps all.

    Raises:
        UserError: There is no such run, it is saved faster than it can be copied, or the copy cannot be written or read.
    """
    if not (run / GENERATION).is_file():
        raise UserError(
            ExitCode.NOTHING_TO_RESUME, f"{run} holds no run; {listing(run.parent)} lists those of its folder"
        )
    *folders, last = PurePosixPath(run_id or run.name).parts
    target = target.joinpath(*folders)
    name = f"{last}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    partial, whole = target / f".{name}{_PARTIAL}", target / name
    try:
        partial.mkdir(mode=0o700, parents=True)
        try:
            with _held(partial):
                _remove_left(last, target)
                _copy_one_moment(run, partial)
                _require_readable(partial)
                _flush(partial)
            partial.rename(whole)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise UserError(ExitCode.NOT_SAVED, f"{run} cannot be copied to {whole} ({error.strerror or error})") from None
    if keep is not None:
        _remove_copies(last, target, keep)
    return whole


@contextmanager
def _held(partial: Path) -> Iterator[None]:
    """Shows other calls that a copy is being made; its lock ends with the process."""
    lock = FolderLock(partial)
    try:
        yield
    finally:
        lock.release()
        (partial / LOCK_NAME).unlink()


def _remove_left(name: str, target: Path) -> None:
    """Removes incomplete copies of a run that no call makes any more."""
    for path in target.iterdir():
        if re.fullmatch(rf"\.{re.escape(name)}-{_TIME}{re.escape(_PARTIAL)}", path.name):
            is_made = FolderLock.state(path)
            if is_made is False or (is_made is None and time.time() - path.stat().st_mtime > _LONG_SECONDS):
                shutil.rmtree(path, ignore_errors=True)


def _copy_one_moment(run: Path, partial: Path) -> None:
    copied: dict[Path, _Stamp] = {}
    for _ in range(_PASSES):
        before = _stamp(run / RUN_STATE)
        found = dict(_files(run))
        for path in copied.keys() - found.keys():
            (partial / path).unlink(missing_ok=True)
        for path, stamp in found.items():
            if copied.get(path) != stamp:
                with suppress(FileNotFoundError):  # retention removed it
                    _copy(run / path, partial / path)
        copied = found
        if _stamp(run / RUN_STATE) == before:
            return
    raise UserError(
        ExitCode.NOT_SAVED,
        f"{run} was saved {_PASSES} times while it was copied: copy it to a faster disk, or raise rollcast.checkpoint_seconds",
    )


def _files(run: Path) -> Iterator[tuple[Path, _Stamp]]:
    """Yields the regular files of a run, by their path in it."""
    for folder, _, names in os.walk(run):
        for name in names:
            path = Path(folder, name)
            stamp = _stamp(path)
            if stamp is not None and name not in _OF_A_PROCESS and not name.endswith(".tmp"):
                yield path.relative_to(run), stamp


def _stamp(path: Path) -> _Stamp | None:
    """Returns what changes with a file; None for what is no regular file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def _require_readable(partial: Path) -> None:
    from learner.shared.runfolder.store import read_run_state  # noqa: PLC0415 - loads torch

    if (partial / RUN_STATE).exists() and read_run_state(partial) is None:
        raise UserError(
            ExitCode.BAD_CHECKPOINT, "the run state cannot be read, nor the one before it: nothing was kept"
        )


def _flush(partial: Path) -> None:
    """Makes a copy survive a power failure."""
    for folder, _, names in os.walk(partial):
        for name in names:
            with Path(folder, name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))


def _remove_copies(name: str, target: Path, keep: int) -> None:
    copies = sorted(path for path in target.iterdir() if re.fullmatch(rf"{re.escape(name)}-{_TIME}", path.name))
    for path in copies[: max(0, len(copies) - keep)]:
        shutil.rmtree(path, ignore_errors=True)
