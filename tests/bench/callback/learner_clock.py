"""Reads the learner's clocks at each update, as a callback within the learner."""

import json
import time
from pathlib import Path
from typing import Protocol

FILE = "learner-clock.json"
CLOCK_PATH = Path(__file__)


class Updated(Protocol):
    """The fields of an update event that the callback reads."""

    @property
    def version(self) -> int:
        """Completed updates."""
        ...

    @property
    def env_steps_trained(self) -> int:
        """Steps in all updates."""
        ...


class Ended(Protocol):
    """The fields of an end event that the callback reads."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        ...


class LearnerClock:
    """Records updates, trained steps, CPU seconds and wall seconds in the run folder.

    CPU seconds are those of all threads of this process, user and system.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[int, int, float, float]] = []

    def on_update(self, event: Updated) -> None:
        """Reads the clocks."""
        self._marks.append((event.version, event.env_steps_trained, time.process_time(), time.monotonic()))

    def on_end(self, event: Ended) -> None:
        """Writes what was read."""
        (event.folder / FILE).write_text(json.dumps(self._marks), encoding="utf-8")


def clock_by_updates() -> LearnerClock:
    """Returns a clock, and lets trainers with a replay memory broadcast by the number of updates, never by the time."""
    from learner.trainers import replay

    replay.PUBLISH_SECONDS *= 1e9  # type: ignore[misc] # multiplied and not set: a checkout without it fails
    return LearnerClock()
