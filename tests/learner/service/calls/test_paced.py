"""Tests the pace of passes over all sessions."""

from __future__ import annotations

import time

import pytest

from learner.service.calls.session_router import REST, PacedPass
from tests.learner.service.calls.harness import eventually


async def test_a_pass_is_followed_by_a_rest_of_ten_times_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests during the rest become one pass, with all their behaviors."""
    now, passes = 100.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def run(behaviors: set[int]) -> None:
        nonlocal now
        passes.append((now, behaviors))
        now += 0.01

    paced = PacedPass(run)
    paced.request([0])
    for index in (1, 2, 1):
        paced.request([index])
    assert passes == [(100.0, {0})]
    now = 100.01 + REST * 0.01
    await eventually(lambda: len(passes) == 2)
    assert passes[1][1] == {1, 2}
    now += 1.0
    paced.request([3])
    assert passes[2][1] == {3}
    paced.request([4])
    paced.stop()
    assert len(passes) == 3
