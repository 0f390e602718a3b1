"""Tests that repeated log lines are limited."""

from __future__ import annotations

from actor_client.logs import Notices


def test_lines_are_left_out_and_counted() -> None:
    """Each kind of line has its own interval, and the next line has the number of those left out."""
    now = [0.0]
    notices = Notices(10.0, lambda: now[0])
    assert notices.due("a") == 0
    assert notices.due("a") is None
    assert notices.due("b") == 0
    now[0] = 9.9
    assert notices.due("a") is None
    now[0] = 10.0
    assert notices.due("a") == 2
    assert notices.due("a") is None
    notices.reset("a")
    assert notices.due("a") == 0
