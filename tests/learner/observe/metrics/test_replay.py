"""Metrics of replay memory."""

from __future__ import annotations

from learner.observe.metrics.behaviors import ReplayNumbers
from learner.observe.metrics.learner import LearnerMetrics
from tests.learner.observe.metrics.test_learner import value


def test_a_replay_memory_is_shown() -> None:
    """Sizes as they are, counts as counters; a behavior without such a memory has zeros."""
    metrics = LearnerMetrics()
    part = metrics.behavior("A")
    assert value(metrics, "replay_steps", behavior="A") == 0
    part.show_replay(ReplayNumbers(steps=100, owed=3, drawn=640, evicted=0, evicted_undrawn=0))
    part.show_replay(ReplayNumbers(steps=90, owed=0, drawn=1280, evicted=40, evicted_undrawn=7))
    assert value(metrics, "replay_steps", behavior="A") == 90
    assert value(metrics, "owed_updates", behavior="A") == 0
    assert value(metrics, "replay_drawn_steps_total", behavior="A") == 1280
    assert value(metrics, "replay_evicted_steps_total", behavior="A") == 40
    assert value(metrics, "replay_evicted_undrawn_steps_total", behavior="A") == 7
    part.note_update(5)
    assert value(metrics, "updates_total", behavior="A") == 5
