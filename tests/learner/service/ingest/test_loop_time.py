"""Tests the budget of one session in the event loop."""

from __future__ import annotations

import pytest

from learner.service.ingest.session import BURST_SECONDS, BYTE_SECONDS, CHUNK_SECONDS, SHARE, LoopTime


def spent(seconds: float, queued_bytes: int | None, sessions: int, times: int = 1) -> LoopTime:
    """Returns a session that took time at moment 0."""
    loop_time = LoopTime()
    loop_time.wait_seconds(0.0)
    for _ in range(times):
        loop_time.charge(seconds, queued_bytes, sessions)
    return loop_time


def test_chunks_that_bring_nothing_share_a_tenth_of_the_loop() -> None:
    """After a burst the session waits until its time is a tenth of the time that passed."""
    assert spent(BURST_SECONDS, None, 2).wait_seconds(0.0) == 0
    loop_time = spent(2 * BURST_SECONDS, None, 2)
    wait_seconds = loop_time.wait_seconds(0.0)
    assert wait_seconds == pytest.approx(BURST_SECONDS / SHARE)
    assert loop_time.wait_seconds(wait_seconds / 2) == pytest.approx(wait_seconds / 2)
    assert loop_time.wait_seconds(wait_seconds) == pytest.approx(0)


@pytest.mark.parametrize("sessions", [1, 3, 9])
def test_queued_rows_may_take_an_equal_share(sessions: int) -> None:
    """A session with credit never waits while it takes less than its part of the loop, however few sessions there are."""
    loop_time, now = LoopTime(), 0.0
    loop_time.wait_seconds(now)
    for _ in range(1000):
        loop_time.charge(0.002, 10**6, sessions)
        now += 0.002 * sessions * 1.01
        assert loop_time.wait_seconds(now) == 0


def test_time_beyond_that_of_the_rows_counts_in_full() -> None:
    """A chunk with one small row and much else is charged for the rest."""
    many = 10**6
    honest = CHUNK_SECONDS + BYTE_SECONDS * 40
    rest = spent(honest + 0.5, 40, 10).wait_seconds(0.0) - spent(honest + 0.25, 40, 10).wait_seconds(0.0)
    assert rest == pytest.approx(0.25 / SHARE)
    assert spent(honest, 40, many).wait_seconds(0.0) == 0
