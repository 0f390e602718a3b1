"""The text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class WithoutCreated(Collector):
    """A registry without the series `..._created`, which the client library adds to each counter and histogram.

    The library's own switch for it is one for the whole process.

    Args:
        registry: what is read.
    """

    def __init__(self, registry: Collector) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics."""
        for metric in self._registry.collect():
            created = f"{metric.name}_created"
            metric.samples = [sample for sample in metric.samples if sample.name != created]
            yield metric


def exposition(registry: Collector) -> bytes:
    """Returns all metrics in Prometheus' text format (`CONTENT_TYPE`)."""
    return generate_latest(WithoutCreated(registry))
