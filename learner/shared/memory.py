"""Measures free memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from learner.shared.platform import memory_bytes

_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


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
