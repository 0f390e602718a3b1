"""How far lock-step is, and what spoiled it, wherever people and machines look."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from learner.commands.status_text import render_status
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.metrics.state import MetricsSnapshot
from learner.observe.summary import Summary, write_summary
from learner.observe.view import LockstepView, RunState, RunView
from learner.service.control_calls import status_response
from tests.learner.observe.test_panel import draw
from tests.learner.observe.views import behavior, run_view

FINE = LockstepView(actors=2, joined=2, round=7, checkpoint_round=5, quota_steps=64)
SPOILED = replace(FINE, joined=1, reason="actor 1 (ri\x1bght) was lost, in round 6")


def status_text(view: LockstepView | None) -> str:
    """What `rollcast-learner status` prints."""
    run = RunView("run", RunState.TRAINING, 1, 1.0, "", lockstep=view)
    return render_status(status_response(run, [], server_version="1", now=0.0, rate_of=lambda _: 0.0))


def test_operators_see_it() -> None:
    """The status says who plays, how far it is, where a restart goes on, and why it cannot be repeated."""
    line = "lock-step: 2 of 2 actors, round 7 done, 64 steps an agent, a restart goes on after round 5; reproducible"
    assert line in status_text(FINE).splitlines()
    assert "NOT REPRODUCIBLE: actor 1 (ri\\x1bght) was lost, in round 6" in status_text(SPOILED)
    assert "lock-step" not in status_text(None)


def test_the_panel_shows_it() -> None:
    """One line, where the run is in lock-step."""
    assert "lock-step   round 7   2 of 2 actors   reproducible" in draw(replace(run_view(behavior()), lockstep=FINE))
    assert "was lost" in draw(replace(run_view(behavior()), lockstep=SPOILED))
    assert "lock-step" not in draw(run_view(behavior()))


@pytest.mark.parametrize(("view", "value"), [(FINE, "1.0"), (SPOILED, "0.0")])
def test_metrics_have_it(view: LockstepView, value: str) -> None:
    """Two series, in runs that are in lock-step alone."""
    metrics = LearnerMetrics()
    metrics.watch(lambda: MetricsSnapshot(replace(run_view(), lockstep=view)))
    lines = metrics.exposition().decode().splitlines()
    assert f"rollcast_learner_lockstep_reproducible {value}" in lines
    assert "rollcast_learner_lockstep_round 7.0" in lines
    other = LearnerMetrics()
    other.watch(lambda: MetricsSnapshot(run_view()))
    series = other.exposition().decode().splitlines()
    assert not [line for line in series if line.startswith("rollcast_learner_lockstep")]


def test_the_summary_keeps_it(tmp_path: Path) -> None:
    """Programs that compare runs can leave out what cannot be repeated."""
    content = json.loads(write_summary(tmp_path, Summary("run", 1, "max_steps", {}, SPOILED)).read_text())
    assert content["lockstep"]["reproducible"] is False
    assert content["lockstep"]["reason"] == SPOILED.reason
    assert "lockstep" not in json.loads(write_summary(tmp_path, Summary("run", 1, "max_steps", {})).read_text())
