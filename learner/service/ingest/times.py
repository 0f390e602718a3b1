"""Tracks how an actor recently spent its time, according to its reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from rollcast.errors import BadRequest
from rollcast.v1 import session_pb2

MAX_SECONDS: Final = 1e9
"""More than thirty years; larger values in a report are invalid."""
WINDOW_SECONDS: Final = 10.0
"""Length of the window for shares, in seconds of the actor's clock."""
LEAST_STEP_SECONDS: Final = 0.5
"""Reports at shorter intervals replace each other, so that an actor that sends many cannot fill the memory."""
WAIT_REASONS: Final = ("credit", "hold", "policy", "connection")
REPORT_SECONDS: Final = 2.0
REPORTS_PER_SECOND: Final = 50
"""Reports per second of all actors together; handling one takes the event loop half a millisecond."""


def report_seconds(actors: int) -> float:
    """Returns the interval between an actor's reports in seconds: two, or more if there are very many actors."""
    return max(REPORT_SECONDS, actors / REPORTS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class ActorTimes:
    """One report; see ActorTimes in session.proto.

    Attributes:
        wall_seconds: Seconds since the session began.
        wait_seconds: Seconds of these without stepping, by reason.
        round_trip_seconds: Seconds from a chunk to its ack; None before the first.
    """

    wall_seconds: float
    wait_seconds: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(WAIT_REASONS, 0.0))
    round_trip_seconds: float | None = None

    @classmethod
    def from_message(cls, message: session_pb2.ActorTimes) -> Self:
        """Decodes and checks a report.

        Raises:
            BadRequest: A value is not finite, negative, or out of bounds.
        """
        for descriptor, seconds in message.ListFields():
            if not (math.isfinite(seconds) and 0.0 <= seconds <= MAX_SECONDS):
                raise BadRequest(
                    f"times.{descriptor.name} is {seconds}; 0 to {MAX_SECONDS:g} seconds are allowed",
                    metadata={"field": f"times.{descriptor.name}"},
                )
        return cls(
            wall_seconds=message.wall_seconds,
            wait_seconds={reason: getattr(message, f"{reason}_seconds") for reason in WAIT_REASONS},
            round_trip_seconds=message.round_trip_seconds if message.HasField("round_trip_seconds") else None,
        )


class TimesWindow:
    """Keeps the recent reports of one session. One thread adds, any may read.

    Attributes:
        reported_at: When the newest report arrived, in monotonic seconds of the learner; None before the first.
    """

    __slots__ = ("_reports", "reported_at")

    def __init__(self) -> None:
        self.reported_at: float | None = None
        self._reports: tuple[ActorTimes, ...] = ()

    def add(self, times: ActorTimes, now: float) -> None:
        """Adds a report; starts over if the actor's wall clock fell."""
        reports = list(self._reports)
        if reports and times.wall_seconds < reports[-1].wall_seconds:
            reports.clear()
        if len(reports) > 1 and reports[-1].wall_seconds - reports[-2].wall_seconds < LEAST_STEP_SECONDS:
            reports.pop()
        reports.append(times)
        # Keep one report that is older than the window, so that the window is always covered.
        while len(reports) > 2 and reports[1].wall_seconds <= times.wall_seconds - WINDOW_SECONDS:
            reports.pop(0)
        self._reports = tuple(reports)
        self.reported_at = now

    def restart(self) -> None:
        """Forgets earlier reports, as after a pause; keeps the newest for comparison."""
        self._reports = self._reports[-1:]

    @property
    def waits(self) -> dict[str, float] | None:
        """Shares of the window spent waiting, by reason, together 0 to 1; None before there are two reports."""
        reports = self._reports
        if len(reports) < 2 or (seconds := reports[-1].wall_seconds - reports[0].wall_seconds) <= 0:
            return None
        old, new = reports[0].wait_seconds, reports[-1].wait_seconds
        shares = {reason: max(0.0, new[reason] - old[reason]) / seconds for reason in WAIT_REASONS}
        total = max(1.0, sum(shares.values()))  # a wait that ended just before a report may be counted a little late
        return {reason: share / total for reason, share in shares.items()}

    @property
    def wait_share(self) -> float | None:
        """Share of the window spent waiting, 0 to 1; None before there are two reports."""
        waits = self.waits
        return None if waits is None else min(1.0, sum(waits.values()))

    @property
    def waits_for(self) -> str:
        """Reason of the longest wait; empty if there was none or it is unknown."""
        waits = self.waits or {}
        reason = max(waits, key=lambda key: waits[key], default="")
        return reason if reason and waits[reason] > 0 else ""

    @property
    def round_trip_seconds(self) -> float | None:
        """The newest round trip reported, in seconds; None if there is none."""
        return self._reports[-1].round_trip_seconds if self._reports else None
