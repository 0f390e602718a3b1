"""How long a trainer collects and how long it updates."""

from __future__ import annotations

import time
from collections.abc import Callable

from learner.observe.metrics.behaviors import BehaviorMetrics
from learner.observe.stats import StatsReporter


class UpdateClock:
    """Measures the phases of a trainer and reports them; the time of a pause belongs to neither.

    Args:
        stats: where seconds and steps per second go.
        clock: monotonic seconds.
        metrics: where the seconds of collections go, too.
    """

    def __init__(
        self,
        stats: StatsReporter,
        clock: Callable[[], float] = time.monotonic,
        metrics: BehaviorMetrics | None = None,
    ) -> None:
        self._stats = stats
        self._metrics = metrics
        self._clock = clock
        self._phase_began = self._paused_at = clock()
        self._collect_seconds = 0.0

    def begin_update(self) -> None:
        """Ends a collection and begins an update."""
        self._collect_seconds = self._next_phase()
        if self._metrics is not None:
            self._metrics.batch_wait.observe(self._collect_seconds)

    def end_update(self, steps: int) -> None:
        """Ends an update of so many environment steps, reports both phases, and begins the next collection."""
        seconds = self._next_phase()
        self._stats.add_stat("Rollcast/Collect Seconds", self._collect_seconds)
        self._stats.add_stat("Rollcast/Update Seconds", seconds)
        self._stats.add_stat("Rollcast/Steps per Second", steps / max(self._collect_seconds + seconds, 1e-9))

    def pause(self) -> None:
        """Stops the clock."""
        self._paused_at = self._clock()

    def resume(self) -> None:
        """Lets the clock go on."""
        self._phase_began += self._clock() - self._paused_at

    def _next_phase(self) -> float:
        now = self._clock()
        seconds, self._phase_began = now - self._phase_began, now
        return seconds
