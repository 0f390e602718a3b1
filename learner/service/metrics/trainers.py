"""Processor time and memory of the processes of the trainers."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from learner.shared.observe.values import PREFIX
from learner.shared.platform import usage_with_children


class TrainersCollector(Collector):
    """Reads what the trainers' process and its children use, where there is ``/proc``; the service has its own `process_*`.

    Args:
        pid: The process that the service has started: the trainers, or the launcher of all ranks.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most_seconds = 0.0

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics; without values once the process has ended."""
        seconds = CounterMetricFamily(
            f"{PREFIX}trainers_cpu_seconds", "Processor time of the processes of the trainers."
        )
        memory = GaugeMetricFamily(
            f"{PREFIX}trainers_resident_memory_bytes", "Resident memory of the processes of the trainers."
        )
        used = usage_with_children(self._pid)
        if used is not None:
            # A child that ends while its parent is read is in neither sum for a moment.
            self._most_seconds = max(self._most_seconds, used[0])
            seconds.add_metric((), self._most_seconds)
            memory.add_metric((), used[1])
        yield seconds
        yield memory
