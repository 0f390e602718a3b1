"""Tests the shares of an actor's time, computed from its reports."""

from __future__ import annotations

import math

import pytest
from rollcast.errors import BadRequest
from rollcast.v1 import session_pb2

from learner.service.ingest.times import MAX_SECONDS, WAIT_REASONS, ActorTimes, TimesWindow, report_seconds


def times(wall: float, round_trip: float | None = None, **waits: float) -> ActorTimes:
    """Returns a report."""
    return ActorTimes(wall, dict.fromkeys(WAIT_REASONS, 0.0) | waits, round_trip)


def window(*reports: ActorTimes) -> TimesWindow:
    """Returns a window with these reports."""
    made = TimesWindow()
    for report in reports:
        made.add(report, report.wall_seconds)
    return made


def test_a_report_is_taken_as_it_is() -> None:
    """Every value of a report arrives, and a missing round trip is None."""
    message = session_pb2.ActorTimes(
        wall_seconds=8, credit_seconds=1, hold_seconds=2, policy_seconds=0.5, connection_seconds=0.25
    )
    assert ActorTimes.from_message(message) == times(8, credit=1, hold=2, policy=0.5, connection=0.25)
    message.round_trip_seconds = 0.0
    assert ActorTimes.from_message(message).round_trip_seconds == 0.0


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1e-9, MAX_SECONDS * 1.01])
@pytest.mark.parametrize("field", [*(f"{reason}_seconds" for reason in WAIT_REASONS), "wall_seconds", "round_trip_seconds"])  # fmt: skip
def test_nonsense_is_refused(field: str, seconds: float) -> None:
    """An impossible value is refused by name."""
    with pytest.raises(BadRequest, match=rf"times\.{field} is .*; 0 to 1e\+09 seconds are allowed"):
        ActorTimes.from_message(session_pb2.ActorTimes(**{field: seconds}))


def test_shares_are_of_the_last_seconds() -> None:
    """Shares compare two reports within the window."""
    assert window().wait_share is window(times(5, credit=1)).wait_share is None
    seen = window(times(5, credit=1), times(7, credit=2, policy=0.5, round_trip=0.1))
    assert seen.waits == {"credit": 0.5, "hold": 0.0, "policy": 0.25, "connection": 0.0}
    assert (seen.wait_share, seen.waits_for, seen.round_trip_seconds, seen.reported_at) == (0.75, "credit", 0.1, 7)
    for wall in range(9, 40, 2):
        seen.add(times(wall, credit=2, policy=0.5, hold=(wall - 7) / 4), wall)
    assert (seen.wait_share, seen.waits_for, seen.round_trip_seconds) == (0.25, "hold", None)


def test_a_pause_is_forgotten() -> None:
    """After a restart the next report is compared with the newest one."""
    seen = window(times(1), times(9, hold=8))
    seen.restart()
    assert seen.waits is None
    seen.add(times(11, hold=8), 11)
    assert seen.waits == dict.fromkeys(WAIT_REASONS, 0.0)
    assert not seen.waits_for


def test_shares_stay_shares_whatever_is_reported() -> None:
    """Impossible waits and clocks neither divide by 0 nor give a share above 1."""
    assert window(times(1), times(2, credit=5, hold=5)).wait_share == 1.0
    assert window(times(3), times(3)).wait_share is None
    assert window(times(9, credit=3), times(2, credit=1), times(4, credit=1)).wait_share == 0.0
    assert window(times(1, credit=3), times(2, credit=1)).wait_share == 0.0


def test_many_actors_report_less_often() -> None:
    """Few actors report every two seconds, and many report less often."""
    assert [report_seconds(actors) for actors in (1, 100, 1000)] == [2.0, 2.0, 20.0]
