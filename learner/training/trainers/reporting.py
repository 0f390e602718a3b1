"""Reports the trainers' state to the service."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from learner.link.to_front import Stats
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.view import GpuUse, LessonView, LockstepView
from learner.training.trainers.parts import Trainers

REPORT_SECONDS: Final = 0.05
"""Least time between two reports without news."""
GPU_SECONDS: Final = 1.0
"""Least time between two reads of GPU memory, which take torch longer than the rest of a report."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of a run's numbers that belong to no single trainer. All are called in the thread of `Reporting.send`.

    Attributes:
        meters: The counters.
        at_target: Returns the behaviors whose mean return has reached the target.
        lessons: Returns the current lesson of each environment parameter.
        lockstep: Returns the progress of a lock-step run.
        obstacle: Returns why no actor trains while all play an evaluation; otherwise an empty text.
        gpu: Returns the memory of the training device; None if it is not a GPU.
        changed: Returns the settings of the service that have changed since the start, by name.
    """

    meters: RunMeters = field(default_factory=RunMeters)
    at_target: Callable[[], Collection[str]] = frozenset
    lessons: Callable[[], tuple[LessonView, ...]] = tuple
    lockstep: Callable[[], LockstepView | None] = lambda: None
    obstacle: Callable[[], str] = str
    gpu: Callable[[], GpuUse] | None = None
    changed: Callable[[], Mapping[str, float | None]] = dict


class Reporting:
    """Builds and sends reports, at most 20 a second unless there is special news.

    Use it in the trainers' thread, or while that thread does not run.

    Args:
        send: Sends a report to the service.
        sources: Sources of the run's numbers.
        clock: Returns monotonic seconds, from the same clock as the service.

    Attributes:
        sources: As given.
        last_error: Newest error in one line; empty if none.
    """

    def __init__(
        self, send: Callable[[Stats], object], sources: Sources, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.last_error = ""
        self._send = send
        self.sources = sources
        self._clock = clock
        self._sent_at = self._gpu_at = -float("inf")
        self._gpu: GpuUse | None = None
        self._newest = Stats(clock())

    @property
    def due_in_seconds(self) -> float:
        """Seconds until the next report may be sent; 0 or less once it may."""
        return self._sent_at + REPORT_SECONDS - self._clock()

    def send(self, trainers: Trainers, *, busy_seconds: float, is_paused: bool) -> None:
        """Sends a report.

        Args:
            trainers: All trainers.
            busy_seconds: Seconds their thread has worked.
            is_paused: Whether the run is paused.

        Raises:
            ValueError: A trainer reports a number that no field describes.
        """
        sources, now = self.sources, self._clock()
        if sources.gpu is not None and now - self._gpu_at >= GPU_SECONDS:
            self._gpu, self._gpu_at = sources.gpu(), now
        self._sent_at = now
        self._newest = Stats(
            made_at=now,
            trainers={name: trainer.stats() for name, trainer in trainers.items()},
            at_target=frozenset(sources.at_target()),
            counts=sources.meters.counts(),
            lessons=sources.lessons(),
            lockstep=sources.lockstep(),
            last_error=self.last_error,
            obstacle=sources.obstacle(),
            busy_seconds=busy_seconds,
            is_paused=is_paused,
            gpu=self._gpu,
            changed=sources.changed(),
        )
        self._send(self._newest)

    def send_error(self, error: str) -> None:
        """Sends the newest report again with an error; failed trainers are not asked for their state."""
        self.last_error = error
        self._send(replace(self._newest, made_at=self._clock(), last_error=error))
