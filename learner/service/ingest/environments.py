"""Tracks the actors' environments as the actors report them: failures, and calls that do not return."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import structlog
from rollcast.errors import BadRequest
from rollcast.limits import MAX_STEPS
from rollcast.throttle import Throttle
from rollcast.v1 import session_pb2

from learner.service.ingest.times import MAX_SECONDS
from learner.shared.observe.view import EnvironmentView

MAX_ERROR_CHARACTERS: Final = 512
FIRST_HANG_SECONDS: Final = 30.0
"""A call that lasts this long causes a warning, and another each time its duration doubles."""
FAILURE_SHOWN_SECONDS: Final = 300.0
"""Seconds for which the panel and the page show a failure of an actor's environments."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EnvironmentState(EnvironmentView):
    """The environments of one actor; see EnvironmentReport in session.proto."""

    @classmethod
    def from_message(cls, message: session_pb2.EnvironmentReport) -> Self:
        """Decodes and checks a report; long texts are cut.

        Raises:
            BadRequest: A number is out of bounds.
        """
        seconds = message.hanging_seconds
        if message.failures > MAX_STEPS or not (math.isfinite(seconds) and 0.0 <= seconds <= MAX_SECONDS):
            raise BadRequest(
                f"environments: {message.failures} failures and a call of {seconds} s; at most {MAX_STEPS} failures "
                f"and 0 to {MAX_SECONDS:g} s are allowed",
                metadata={"field": "environments"},
            )
        texts = message.error[:MAX_ERROR_CHARACTERS], message.hanging[:MAX_ERROR_CHARACTERS]
        return cls(message.failures, *texts, seconds)


class EnvironmentNotes:
    """Keeps the reports of one session. For the event loop alone; other threads read single attributes.

    Attributes:
        state: Last report; None before the first.
        failed_at: When a failure was last reported, in monotonic seconds; None before the first.
    """

    __slots__ = ("_next_hang_seconds", "_throttle", "failed_at", "state")

    def __init__(self) -> None:
        self.state: EnvironmentState | None = None
        self.failed_at: float | None = None
        self._throttle = Throttle()
        self._next_hang_seconds = FIRST_HANG_SECONDS

    def add(
        self, state: EnvironmentState, actor: str, now: float, *, discarded_steps: int, produced_steps: int
    ) -> None:
        """Stores a report, and warns of new failures and of a call that does not return.

        Args:
            state: The report.
            actor: Name of the actor.
            now: Monotonic seconds.
            discarded_steps: Recorded steps that the actor gave up because of failures.
            produced_steps: Steps that the actor recorded.
        """
        before = 0 if self.state is None else self.state.failures
        self.state = state
        if state.failures > before:
            self.failed_at = now
            if (left_out := self._throttle.admit("failed")) is not None:
                _log.warning(
                    "environment_failed",
                    actor=actor,
                    error=state.error,
                    failures=state.failures,
                    discarded_steps=discarded_steps,
                    produced_steps=produced_steps,
                    left_out=left_out,
                )
        if not state.hanging:
            self._next_hang_seconds = FIRST_HANG_SECONDS
        elif state.hanging_seconds >= self._next_hang_seconds:
            self._next_hang_seconds = 2 * state.hanging_seconds
            _log.warning("environment_hangs", actor=actor, call=f"{state.hanging} for {state.hanging_seconds:.0f} s")

    def complaint(self, now: float, within_seconds: float = FAILURE_SHOWN_SECONDS) -> str:
        """Describes the current problem: a call that does not return, or a recent failure. Empty if there is none.

        Args:
            now: Monotonic seconds.
            within_seconds: Seconds for which a failure counts as recent.
        """
        state = self.state
        if state is None:
            return ""
        if state.hanging:
            return f"{state.hanging} for {state.hanging_seconds:.0f} s"
        if self.failed_at is not None and now - self.failed_at <= within_seconds:
            return state.error
        return ""
