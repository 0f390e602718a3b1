"""Histograms that take whole arrays: an update has thousands of steps, and one call for each would cost too much."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

BEHAVIOR = "behavior"


class ArraySeries:
    """The histogram of one behavior. Thread-safe.

    Args:
        bounds: upper bounds of the buckets, ascending and finite; a value equal to one belongs to its bucket.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.asarray(bounds, np.float64)
        # As the client library writes the bounds of its own histograms.
        self._names = [str(floatToGoString(bound)) for bound in (*bounds, math.inf)]  # type: ignore[no-untyped-call]
        self._counts = np.zeros(len(bounds) + 1, np.float64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, values: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Counts values; those that are NaN or infinite are left out.

        Args:
            values: ``[K]``, any real dtype.
            weights: ``[K]``, how often each value is counted; None counts each once.
        """
        flat = np.asarray(values, np.float64).reshape(-1)
        finite = np.isfinite(flat)
        chosen = None if weights is None else np.asarray(weights, np.float64).reshape(-1)
        if not finite.all():
            flat = flat[finite]
            chosen = None if chosen is None else chosen[finite]
        places = np.searchsorted(self._bounds, flat, side="left")
        counts = np.bincount(places, chosen, minlength=len(self._counts))
        self.add(counts, float(flat.sum() if chosen is None else flat @ chosen))

    def add(self, counts: Sequence[float] | NDArray[Any], total: float) -> None:
        """Adds values that were counted elsewhere.

        Args:
            counts: ``[len(bounds) + 1]``, values of each bucket, the last one for those above all bounds.
            total: their sum.
        """
        with self._lock:
            self._counts += counts
            self._sum += total

    def sample(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the cumulative buckets, each with its bound as Prometheus writes it, and the sum."""
        with self._lock:
            counts, total = self._counts.tolist(), self._sum
        return list(zip(self._names, itertools.accumulate(counts), strict=True)), total


class ArrayHistogram(Collector):
    """A histogram with the label ``behavior``.

    Args:
        name: of the metric.
        documentation: its help.
        bounds: upper bounds of the buckets.
        registry: where it is read.
    """

    def __init__(self, name: str, documentation: str, bounds: Sequence[float], registry: CollectorRegistry) -> None:
        self.bounds = tuple(bounds)
        self._name = name
        self._documentation = documentation
        self._series: dict[str, ArraySeries] = {}
        registry.register(self)

    def of(self, behavior: str) -> ArraySeries:
        """Returns the series of a behavior, a new one with nothing in it if there is none."""
        series = self._series.get(behavior)
        return series if series is not None else self._series.setdefault(behavior, ArraySeries(self.bounds))

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Yields the metric as it is now."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[BEHAVIOR])
        for behavior, series in self._series.copy().items():  # a copy is one moment; others add meanwhile
            buckets, total = series.sample()
            family.add_metric([behavior], buckets=buckets, sum_value=None)
            # The client library leaves these two out where a bound is negative: then the sum may fall. Prometheus
            # itself takes them, and the number of episodes is worth having.
            family.add_sample(f"{self._name}_count", {BEHAVIOR: behavior}, buckets[-1][1])
            family.add_sample(f"{self._name}_sum", {BEHAVIOR: behavior}, total)
        yield family
