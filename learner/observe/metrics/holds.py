"""How long actors are held back, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from rollcast.enums import HoldReason

from learner.observe.metrics.values import HOLD_REASONS, PREFIX


class HoldClock(Collector):
    """Adds up the time for which each reason held anyone; several holders at once count once. Thread-safe.

    Args:
        registry: where it is read.
        clock: monotonic seconds.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holders: dict[HoldReason, set[str]] = {reason: set() for reason in HOLD_REASONS}
        self._since: dict[HoldReason, float] = {}
        self._seconds: dict[HoldReason, float] = dict.fromkeys(HOLD_REASONS, 0.0)
        registry.register(self)

    def set(self, reason: HoldReason, holder: str, *, active: bool) -> None:
        """Notes that a holder (a behavior, or the run) begins or ends to hold; again is harmless."""
        holders = self._holders.get(reason)
        if holders is None or (holder in holders) == active:
            return
        with self._lock:
            now = self._clock()
            if active:
                if not holders:
                    self._since[reason] = now
                holders.add(holder)
                return
            holders.discard(holder)
            if not holders and reason in self._since:
                self._seconds[reason] += now - self._since.pop(reason)

    def collect(self) -> Iterable[Metric]:
        """Yields which reasons hold now, and for how long each did."""
        held = GaugeMetricFamily(f"{PREFIX}held", "Whether actors are held back.", labels=["reason"])
        seconds = CounterMetricFamily(f"{PREFIX}held_seconds", "Time for which actors were held.", labels=["reason"])
        with self._lock:
            now = self._clock()
            for reason, name in HOLD_REASONS.items():
                since = self._since.get(reason)
                held.add_metric([name], float(since is not None))
                seconds.add_metric([name], self._seconds[reason] + (0.0 if since is None else now - since))
        yield held
        yield seconds
