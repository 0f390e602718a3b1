"""Processor time and memory of the processes of the trainers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from learner.observe.metrics.values import PREFIX


class TrainersCollector(Collector):
    """Reads what the trainers' process and its children use, where there is ``/proc``; the service has its own `process_*`.

    Args:
        pid: The process that the service has started: the trainers, or the torchrun of all ranks.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics; without values once the process has ended."""
        seconds = CounterMetricFamily(
            f"{PREFIX}trainers_cpu_seconds", "Processor time of the processes of the trainers."
        )
        memory = GaugeMetricFamily(
            f"{PREFIX}trainers_resident_memory_bytes", "Resident memory of the processes of the trainers."
        )
        with contextlib.suppress(OSError):
            used = [_usage(pid) for pid in _with_children(self._pid)]
            seconds.add_metric((), sum(each for each, _ in used))
            memory.add_metric((), sum(each for _, each in used))
        yield seconds
        yield memory


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text(encoding="ascii").split():
            yield from _with_children(int(child))


def _usage(pid: int) -> tuple[float, int]:
    """Returns processor seconds and resident bytes of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    fields = stat.rpartition(")")[2].split()  # the name of the program may have spaces and brackets
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
