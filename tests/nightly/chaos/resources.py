"""What a run takes from the machine: memory and descriptors of its processes, a small disk, and the wall clock."""

from __future__ import annotations

import contextlib
import re
import resource
import statistics
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HOUR_SECONDS = 3600
LIBRARY = "libfaketimeMT.so.1"
MOST_RSS_RATIO = 1.5
SAMPLE_SECONDS = 1.0
MIB = 1 << 20


def rss_bytes(pid: int) -> int:
    """Returns the resident memory of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def descriptors(pid: int) -> int:
    """Returns the number of open descriptors of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return 0


@dataclass(slots=True)
class Samples:
    """Memory of the processes of one role."""

    quiet_bytes: list[int] = field(default_factory=list)
    most_bytes: int = 0

    @property
    def quiet(self) -> int:
        """Returns the largest quiet value."""
        return max(self.quiet_bytes, default=0)


class MemoryWatch:
    """Samples the memory of processes in a thread within a `with` block.

    Args:
        processes: Returns the ids of the present processes, by role.
    """

    def __init__(self, processes: Callable[[], Mapping[str, list[int]]]) -> None:
        self._processes = processes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self.is_quiet = True
        self.samples: defaultdict[str, Samples] = defaultdict(Samples)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def faults(self) -> list[str]:
        """Returns the roles whose memory has passed the limit."""
        return [
            f"{role}: {samples.most_bytes / MIB:.0f} MiB, quiet {samples.quiet / MIB:.0f} MiB"
            for role, samples in self.samples.items()
            if samples.quiet and samples.most_bytes > MOST_RSS_RATIO * samples.quiet
        ]

    def shown(self) -> dict[str, list[float]]:
        """Returns the quiet value and the largest of each role, in MiB."""
        return {
            role: [round(samples.quiet / MIB, 1), round(samples.most_bytes / MIB, 1)]
            for role, samples in self.samples.items()
        }

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            for role, pids in self._processes().items():
                for pid in pids:
                    used = rss_bytes(pid)
                    self.samples[role].most_bytes = max(self.samples[role].most_bytes, used)
                    if self.is_quiet and used:
                        self.samples[role].quiet_bytes.append(used)


class SmallDisk:
    """A tmpfs that can be filled.

    Args:
        path: Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self._filler = path / "filler"

    def fill(self) -> None:
        """Takes all the room there is, to the last byte."""
        for block_bytes in (64 * 1024, 1):
            with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
                while True:
                    file.write(b"\0" * block_bytes)

    def free(self) -> None:
        """Makes room again; repeated calls are harmless."""
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mounts a small disk for the block; needs root."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def take_descriptors(pid: int) -> Callable[[], None]:
    """Lets a process open no more descriptors; returns what restores its limit."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, descriptors(pid)), hard))

    def restore() -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))

    return restore


class WallClock:
    """The wall clock of processes with `environment`; the monotonic clock does not change.

    Args:
        folder: For the file that sets it.

    Attributes:
        environment: Variables of the processes.
    """

    def __init__(self, folder: Path) -> None:
        libraries = sorted(Path("/usr/lib").glob(f"*/faketime/{LIBRARY}"))
        assert libraries, f"{LIBRARY} is missing; on Debian: apt-get install libfaketime"
        self._file = folder / "clock"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(libraries[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, hours: float) -> None:
        """Sets it so many hours from what it should be."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{hours * HOUR_SECONDS:+.0f}\n")
        new.replace(self._file)


def remove_clock_files(pid: int) -> None:
    """Removes what the library leaves of a process that was killed."""
    for path in Path("/dev/shm").glob(f"*faketime*_{pid}"):  # noqa: S108 - left there by who is killed
        path.unlink(missing_ok=True)


def slope_per_second(points: list[tuple[float, float]]) -> float:
    """Returns the slope of the least-squares line through points of seconds and values."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope
