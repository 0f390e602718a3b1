"""Tests the actors of lock-step: their number and their places."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rollcast.errors import BadRequest, TooManySessions
from rollcast.v1 import policy_pb2

from learner.service.calls.assignments import Assignments
from learner.service.calls.run_info import RunInfo
from learner.service.metrics.learner import LearnerMetrics
from learner.service.metrics.state import MetricsSnapshot
from learner.shared.observe.summary import Summary, write_summary
from learner.shared.observe.terminal import render_status
from learner.shared.observe.view import LockstepView, StatusView
from tests.learner.service.ingest.parts import NAME, Parts, make_options
from tests.learner.service.view.test_panel import draw
from tests.learner.shared.observe.views import behavior, run_view


def parts(**lockstep: Any) -> Parts:
    """Returns tables of a lock-step run."""
    return Parts(make_options(lockstep={"actors": 2, **lockstep}))


def test_one_more_actor_waits() -> None:
    """An additional actor is refused with the setting's name until one leaves."""
    run = parts()
    first, second = run.open("a").session, run.open("b").session
    assert (first.actor_index, second.actor_index) == (0, 1)
    with pytest.raises(TooManySessions, match=r"rollcast\.lockstep\.actors"):
        run.open("c")
    run.sessions.close(first, [])
    assert run.open("c").session.actor_index == 0


def test_after_a_restart_actors_have_their_places() -> None:
    """A new process gets the place of an awaited one, by its name or another one."""
    run = parts()
    for name in ("a", "b"):
        run.declared(run.open(name).session)
    again = Parts(run.behaviors._options, generation=2)
    again.behaviors.load_state_dict(run.behaviors.state_dict())
    again.sessions.load_state_dict(run.sessions.state_dict())
    old = again.open("b", instance="another process")
    assert old.session.actor_index == 1
    assert [session.actor_name for session in old.ended] == ["b"]
    new = again.open("new", instance="a third process")
    assert new.session.actor_index == 0
    assert [session.actor_name for session in new.ended] == ["a"]
    assert len(again.sessions.live()) == 2


def test_names_decide_where_the_run_file_has_them() -> None:
    """Names in the run file decide the places; another name is refused permanently."""
    run = parts(actor_names=["left", "right"])
    assert run.open("right").session.actor_index == 1
    with pytest.raises(BadRequest, match="left, right"):
        run.open("middle")
    assert run.open("left").session.actor_index == 0


def test_actors_wait_from_their_opening_on() -> None:
    """The answer to an opening says that there are rounds, in lock-step only."""

    def opening(**service: Any) -> policy_pb2.Assignment | None:
        return RunInfo.from_options(make_options(**service), run_id="run", generation=1, run_seed=1).assignment

    told = opening(lockstep={"actors": 2})
    assert told is not None
    assert (told.lockstep_quota_steps > 0, told.lockstep_round) == (True, 0)
    assert opening() is None


def test_only_players_hear_of_a_round() -> None:
    """A player that joins during a round waits without a reset."""
    run = parts()
    player, late = run.open("a").session, run.open("b").session
    for session in (player, late):
        run.declared(session)
    board = Assignments()
    board.replace(
        policy_pb2.Assignment(lockstep_quota_steps=4, lockstep_round=3, reset=policy_pb2.RESET_MODE_NOW),
        frozenset({player.session_id}),
    )
    found = []
    for session in (player, late):
        message = board.for_session(session)
        assert message is not None
        found.append(policy_pb2.SubscribeResponse.FromString(message).assignment)
    assert [told.lockstep_round for told in found] == [3, 0]
    assert [told.reset for told in found] == [policy_pb2.RESET_MODE_NOW, policy_pb2.RESET_MODE_NONE]
    assert [told.lockstep_quota_steps for told in found] == [4, 4]
    assert all(told.behaviors[0].behavior == NAME for told in found)


FINE = LockstepView(actors=2, joined=2, round=7, checkpoint_round=5, quota_steps=64)
SPOILED = replace(FINE, joined=1, reason="actor 1 (ri\x1bght) was lost, in round 6")


def test_operators_see_whether_a_run_can_be_repeated(tmp_path: Path) -> None:
    """Status, panel, metrics and summary show the rounds and why a run cannot be repeated, in lock-step runs only."""
    for view, value, said in (
        (FINE, "1.0", "reproducible"),
        (SPOILED, "0.0", "actor 1 (ri\\x1bght) was lost, in round 6"),
    ):
        run = replace(run_view(behavior()), lockstep=view)
        assert said in draw(run)
        status = render_status(StatusView(run, (), "1"))
        rounds = f"{view.joined} of 2 actors, round 7 done, 64 steps per agent, a restart continues after round 5"
        assert rounds in status
        assert said in status
        metrics = LearnerMetrics()
        metrics.watch(lambda run=run: MetricsSnapshot(run))  # type: ignore[misc]
        lines = metrics.exposition().decode().splitlines()
        assert {f"rollcast_learner_lockstep_reproducible {value}", "rollcast_learner_lockstep_round 7.0"} <= {*lines}
    other = LearnerMetrics()
    other.watch(lambda: MetricsSnapshot(run_view()))
    assert b"\nrollcast_learner_lockstep" not in other.exposition()
    assert "lock-step" not in draw(run_view(behavior()))
    content = json.loads(write_summary(tmp_path, Summary("run", 1, "max_steps", {}, SPOILED)).read_text())
    assert (content["lockstep"]["reproducible"], content["lockstep"]["reason"]) == (False, SPOILED.reason)
    assert "lockstep" not in json.loads(write_summary(tmp_path, Summary("run", 1, "max_steps", {})).read_text())
