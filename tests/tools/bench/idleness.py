"""Checks whether other processes use the machine."""

import time
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE_FIELDS = (3, 4)
"""Of the line "cpu": idle, and waiting for a disk."""


def busy_cores(seconds: float) -> float | None:
    """Returns how many cores are at work while this process sleeps; None where the system does not say."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None or after[1] <= before[1]:
        return None
    busy, total = after[0] - before[0], after[1] - before[1]
    return busy / total * after[2]


def _ticks() -> tuple[int, int, int] | None:
    """Returns busy and all ticks since the start of the machine, over all cores, and the number of cores."""
    try:
        lines = [line.split() for line in _STAT.read_text(encoding="ascii").splitlines() if line.startswith("cpu")]
    except OSError:
        return None
    ticks = [int(field) for field in lines[0][1:9]]
    return sum(ticks) - sum(ticks[field] for field in _IDLE_FIELDS), sum(ticks), len(lines) - 1
