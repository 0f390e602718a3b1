"""Handles differences between operating systems: signals, streams, processors, memory and files.

Every call that some system lacks is made here or in a library, selected by what this interpreter provides.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rollcast.files import OPEN_FLAGS
from rollcast.signals import stop_signal_numbers

try:
    import resource as _resource
except ImportError:  # Windows
    _limits: Any = None
else:
    _limits = _resource

_NO_FOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_ACCESS_FLAGS: Final = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_MAY_OTHERS: Final = 0o077
_MAY_WRITE: Final = 0o222

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_HELD_OPEN: Final = (5, 32)
"""Windows' ERROR_ACCESS_DENIED and ERROR_SHARING_VIOLATION: another process has the file open."""
_REPLACE_TRIES: Final = 20
_REPLACE_SECONDS: Final = 0.05
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def block_stop_signals(*, blocked: bool) -> None:
    """Holds signals to stop back from this thread and from processes that it starts, or lets them through; not on Windows."""
    mask: Callable[[int, tuple[signal.Signals, ...]], object] | None = getattr(signal, "pthread_sigmask", None)
    if mask is not None:
        mask(getattr(signal, "SIG_BLOCK" if blocked else "SIG_UNBLOCK"), stop_signal_numbers())


def operator_signal_numbers() -> tuple[signal.Signals, ...]:
    """Returns the signals that save a checkpoint and that pause or resume; none on Windows, which lacks them."""
    return tuple(each for each in signal.Signals if each.name in {"SIGUSR1", "SIGUSR2"})


def same_modules() -> dict[str, str]:
    """Returns variables with which a started ``python -m`` finds modules in the current folder only if this program does."""
    return {} if {"", str(Path.cwd())} & set(sys.path) else {"PYTHONSAFEPATH": "1"}


def processors() -> int:
    """Returns the number of processors that this process may use; all of the machine if there is no limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)  # the former from Python 3.13
    return count() or 1


def memory_bytes() -> int | None:
    """Returns the memory of the machine in bytes, on Windows its free memory; None if unknown."""
    if hasattr(os, "sysconf"):
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if hasattr(ctypes, "windll"):
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return int(status.available_bytes)
    return None


def boot_id() -> str:
    """Returns an id of this start of the operating system; empty where the system has none (not Linux)."""
    try:
        return Path(_BOOT_ID).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def raise_descriptor_limit(needed: int) -> int | None:
    """Raises this process's limit of open files, and returns it; None where there is no such limit (Windows).

    Args:
        needed: Number of open files that must be possible. A higher limit stays as it is.
    """
    if _limits is None:
        return None
    soft, hard = _limits.getrlimit(_limits.RLIMIT_NOFILE)
    if soft == _limits.RLIM_INFINITY:
        return needed
    wanted: int = needed if hard == _limits.RLIM_INFINITY else min(needed, hard)
    if soft < wanted:
        try:
            _limits.setrlimit(_limits.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS has a lower limit than it states
            return int(soft)
    return max(int(soft), wanted)


def usage_with_children(pid: int) -> tuple[float, int] | None:
    """Returns the processor seconds and the resident bytes of a process and all its children; None without ``/proc``."""
    sysconf: Callable[[str], int] | None = getattr(os, "sysconf", None)
    if sysconf is None:
        return None
    try:
        used = [_usage(each) for each in _with_children(pid)]
    except OSError:  # it has ended, or this system has no such files
        return None
    seconds = sum(ticks for ticks, _ in used) / sysconf("SC_CLK_TCK")
    return seconds, sum(pages for _, pages in used) * sysconf("SC_PAGE_SIZE")


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text(encoding="ascii").split():
            yield from _with_children(int(child))


def _usage(pid: int) -> tuple[int, int]:
    """Returns the processor time of a process and its ended children in ticks, and its resident memory in pages; see proc(5)."""
    stat_line = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    fields = stat_line.rpartition(")")[2].split()  # the name of the program may have spaces and brackets
    return sum(map(int, fields[11:15])), int(fields[21])


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of sysinfoapi.h."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load_percent", ctypes.c_uint32),
        ("total_bytes", ctypes.c_uint64),
        ("available_bytes", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


def open_descriptor(path: Path, flags: int, *, follow_links: bool = True) -> tuple[int, str]:
    """Opens a binary file, and returns its descriptor and the mode for ``os.fdopen``.

    Args:
        path: Path of the file.
        flags: Flags of ``os.open``.
        follow_links: With False, a symbolic link is an error.

    Raises:
        OSError: The file cannot be opened.
    """
    if not follow_links and not _NO_FOLLOW and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}[flags & _ACCESS_FLAGS]
    return os.open(path, flags | OPEN_FLAGS | (0 if follow_links else _NO_FOLLOW), 0o666), mode


def is_read_only(path: Path) -> bool:
    """Returns whether a file system is read-only; False where this is not known (Windows)."""
    statvfs = getattr(os, "statvfs", None)
    return statvfs is not None and bool(statvfs(path).f_flag & getattr(os, "ST_RDONLY", 1))


def make_private(descriptor: int) -> None:
    """Restricts an open file to its owner; does nothing on Windows, where the folder's rights apply."""
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, stat.S_IRUSR | stat.S_IWUSR)


def keep_from_readers(descriptor: int) -> None:
    """Lets only those open a file who may write to it: who has a file open can lock it. Does nothing on Windows."""
    if hasattr(os, "fchmod"):
        rights = stat.S_IMODE(os.fstat(descriptor).st_mode)
        with contextlib.suppress(PermissionError):  # the file of another user of the group
            os.fchmod(descriptor, rights & ~((~rights & _MAY_WRITE) << 1))


def is_private(descriptor: int) -> bool:
    """Returns whether only the owner can read an open file; True where files have no such modes (Windows)."""
    return not hasattr(os, "fchmod") or not stat.S_IMODE(os.fstat(descriptor).st_mode) & _MAY_OTHERS


def own_user() -> int:
    """Returns the number of the user of this process, as in the owner of a file; 0 where files have none (Windows)."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def replace_file(source: Path, target: Path) -> None:
    """Renames a file, replacing a file of the new name.

    Windows refuses this while another process, such as a virus scanner or a reader of a status file, has the file open.
    Both close it soon, so the call is repeated for up to a second.

    Raises:
        OSError: The file cannot be renamed.
    """
    for tries_left in range(_REPLACE_TRIES, -1, -1):
        try:
            source.replace(target)
            return
        except OSError as error:
            if getattr(error, "winerror", None) not in _HELD_OPEN or not tries_left:
                raise
        time.sleep(_REPLACE_SECONDS)


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Returns the available memory in bytes, of the machine or of its container if that has a limit.

    Args:
        meminfo: Linux's file; without it, the memory that `memory_bytes` returns counts as free.
        cgroup: Folder of this container's limits, of version 2 or 1.
    """
    free = _machine_bytes(meminfo)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is None:  # version 1, which has a very large number for no limit
        limit, used = (_number(cgroup / "memory" / f"memory.{name}_in_bytes") for name in ("limit", "usage"))
    return free if limit is None else max(0, min(free, limit - (used or 0)))


def _machine_bytes(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # another system or format: use the next best number
    return memory_bytes() or sys.maxsize  # unknown: only an explicit limit applies


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # no container, or no limit ("max")
