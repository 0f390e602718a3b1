"""Times a behavior from its first step to its target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from learner.shared.saved_values import MAX_CLAIMED, count, number

_MAX_SECONDS = 1e11
"""Longest time of a run in a checkpoint, in seconds: three thousand years."""


class Milestones:
    """Times one behavior from the first environment step of any actor.

    A run resumed from a checkpoint continues the clock with its next step: the time between, and the wait for actors,
    do not count. The active part of the time since the first step is measured separately.

    Args:
        clock: Returns monotonic seconds.
        target_return: The target; results that a checkpoint holds for another target do not count.

    Attributes:
        active_seconds: Seconds of `wall_seconds` in which the run was not paused and an actor was connected.
        env_steps_taken: Steps recorded so far.
        seconds_to_target: Seconds from the first step to the target, None if it was not reached.
        env_steps_to_target: Steps taken by all actors until the target was reached, None if it was not.
        target_return: As given; may change while the run trains.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, target_return: float | None = None) -> None:
        self._clock = clock
        self.target_return = target_return
        self._started_at: float | None = None
        self._earlier_seconds = 0.0
        self._looked_at: float | None = None
        self.active_seconds = 0.0
        self.env_steps_taken = 0
        self.seconds_to_target: float | None = None
        self.env_steps_to_target: int | None = None

    def note_steps(self, env_steps_taken: int) -> None:
        """Records the steps that all actors have taken so far; the first growth starts the clock."""
        if self._started_at is None and env_steps_taken > self.env_steps_taken:
            self._started_at = self._clock()
        self.env_steps_taken = max(self.env_steps_taken, env_steps_taken)

    def note_activity(self, *, is_idle: bool) -> None:
        """Counts the time since the last call as active or not; call it often, and from one thread.

        Args:
            is_idle: Whether the run is paused or no actor is connected.
        """
        now = self._clock()
        if self._started_at is not None and not is_idle:
            self.active_seconds += now - max(self._started_at, self._looked_at or self._started_at)
        self._looked_at = now

    def note_target(self) -> bool:
        """Records that the target has been reached now, and returns whether this is the first time."""
        if self.seconds_to_target is not None:
            return False
        self.seconds_to_target = self.wall_seconds
        self.env_steps_to_target = self.env_steps_taken
        return True

    @property
    def wall_seconds(self) -> float:
        """Seconds since the first step; 0 before it."""
        running = 0.0 if self._started_at is None else self._clock() - self._started_at
        return self._earlier_seconds + running

    def state_dict(self) -> dict[str, float | int | None]:
        """Returns the state for a checkpoint: the time and steps to the target belong to `target_return`."""
        return {
            "wall_seconds": self.wall_seconds,
            "active_seconds": self.active_seconds,
            "env_steps_taken": self.env_steps_taken,
            "target_return": self.target_return,
            "seconds_to_target": self.seconds_to_target,
            "env_steps_to_target": self.env_steps_to_target,
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restores from `state_dict`; if the target has changed, it is not reached yet.

        Raises:
            KeyError, TypeError, ValueError: A value is missing or invalid.
        """
        self._earlier_seconds = number(state, "wall_seconds", least=0.0, most=_MAX_SECONDS)
        self.active_seconds = number(state, "active_seconds", least=0.0, most=_MAX_SECONDS)
        self.env_steps_taken = count(state, "env_steps_taken", most=MAX_CLAIMED)
        self._started_at = None
        target = None if state["target_return"] is None else number(state, "target_return")
        if target == self.target_return and state["seconds_to_target"] is not None:
            self.seconds_to_target = number(state, "seconds_to_target", least=0.0, most=_MAX_SECONDS)
            self.env_steps_to_target = count(state, "env_steps_to_target", most=MAX_CLAIMED)
