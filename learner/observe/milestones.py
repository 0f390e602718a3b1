"""When a behavior took its first step, and when it reached its target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from learner.common.saved_values import MAX_CLAIMED, count, number

_MAX_SECONDS = 1e11
"""Of a run, in a checkpoint: three thousand years."""


class Milestones:
    """Times one behavior from the first environment step that any actor took.

    A run that goes on from a checkpoint continues the clock with its next step: the time between, and the wait for
    actors, do not count. Of the time since the first step, that in which something could be done is counted besides.

    Args:
        clock: a monotonic clock in seconds.

    Attributes:
        active_seconds: those of `wall_seconds` in which the run was not paused and an actor was there.
        env_steps_taken: the steps noted so far.
        seconds_to_target: time from the first step to the target, None if it was not reached.
        env_steps_to_target: steps taken by all actors until the target was reached, None if it was not.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at: float | None = None
        self._earlier_seconds = 0.0
        self._looked_at: float | None = None
        self.active_seconds = 0.0
        self.env_steps_taken = 0
        self.seconds_to_target: float | None = None
        self.env_steps_to_target: int | None = None

    def note_steps(self, env_steps_taken: int) -> None:
        """Notes the steps that all actors have taken so far; the first growth starts the clock."""
        if self._started_at is None and env_steps_taken > self.env_steps_taken:
            self._started_at = self._clock()
        self.env_steps_taken = max(self.env_steps_taken, env_steps_taken)

    def note_activity(self, *, is_idle: bool) -> None:
        """Counts the time since the last look as active or not; call it often, and from one thread.

        Args:
            is_idle: the run is paused, or no actor is there.
        """
        now = self._clock()
        if self._started_at is not None and not is_idle:
            self.active_seconds += now - max(self._started_at, self._looked_at or self._started_at)
        self._looked_at = now

    def note_target(self) -> bool:
        """Notes that the target has been reached now, and says whether that is news; the first time counts."""
        if self.seconds_to_target is not None:
            return False
        self.seconds_to_target = self.wall_seconds
        self.env_steps_to_target = self.env_steps_taken
        return True

    @property
    def wall_seconds(self) -> float:
        """Time since the first step; 0 before it."""
        running = 0.0 if self._started_at is None else self._clock() - self._started_at
        return self._earlier_seconds + running

    def state_dict(self) -> dict[str, float | int | None]:
        """Returns what a checkpoint keeps."""
        return {
            "wall_seconds": self.wall_seconds,
            "active_seconds": self.active_seconds,
            "env_steps_taken": self.env_steps_taken,
            "seconds_to_target": self.seconds_to_target,
            "env_steps_to_target": self.env_steps_to_target,
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continues from what `state_dict` returned.

        Raises:
            ValueError: a value is missing, or is not what `state_dict` writes.
        """
        self._earlier_seconds = _seconds(state, "wall_seconds") or 0.0
        active_seconds = _seconds(state, "active_seconds")
        self.active_seconds = self._earlier_seconds if active_seconds is None else active_seconds
        self.env_steps_taken = _steps(state, "env_steps_taken") or 0
        self.seconds_to_target = _seconds(state, "seconds_to_target")
        self.env_steps_to_target = _steps(state, "env_steps_to_target")
        self._started_at = None


def _seconds(state: Mapping[str, object], key: str) -> float | None:
    return None if state.get(key) is None else number(state, key, least=0.0, most=_MAX_SECONDS)


def _steps(state: Mapping[str, object], key: str) -> int | None:
    return None if state.get(key) is None else count(state, key, most=MAX_CLAIMED)
