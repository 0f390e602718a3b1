"""How much memory is free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Returns what can be taken without pushing anything out: of the machine, and of the container if it has a limit.

    Args:
        meminfo: of Linux; without it, all the machine's memory counts as free.
        cgroup: of this container (version 2).
    """
    free = _machine_bytes(meminfo)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    return free if limit is None else max(0, min(free, limit - (used or 0)))


def _machine_bytes(meminfo: Path) -> int:
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # another system, or another form: the next best number follows
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # no container, or no limit ("max")
