"""Reads the learner's clocks at each update, as a callback within the learner."""

import json
import os
import time
from pathlib import Path
from typing import Any

FILE = "learner-clock.json"
CLOCK_PATH = Path(__file__)


class LearnerClock:
    """Records updates, trained steps, CPU seconds and wall seconds in the run folder.

    CPU seconds are those of all threads of this process, user and system, and of the service's process, if the trainers have
    one of their own.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[int, int, float, float]] = []

    def on_update(self, event: Any) -> None:
        """Reads the clocks."""
        self._marks.append((event.version, event.env_steps_trained, _cpu_seconds(), time.monotonic()))

    def on_end(self, event: Any) -> None:
        """Writes what was read."""
        (event.folder / FILE).write_text(json.dumps(self._marks), encoding="utf-8")


def _cpu_seconds() -> float:
    own, service = time.process_time(), os.environ.get("ROLLCAST_HISTORY_OWNER")
    if service is None:
        return own
    fields = Path(f"/proc/{service}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return own + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def clock_by_updates() -> LearnerClock:
    """Returns a clock, and lets trainers with a replay memory broadcast by the number of updates, never by the time."""
    from learner.training.trainers import replay

    replay.PUBLISH_SECONDS *= 1e9  # type: ignore[misc] # multiplied and not set: a checkout without it fails
    return LearnerClock()
