"""Tests the status of a run, which is combined from several threads and kept over a restart."""

from __future__ import annotations

from typing import Any

import pytest

from learner.link.to_front import Stats
from learner.service.ingest.ledger import ROLLBACK
from learner.service.ingest.openings import Opening, Resumption
from learner.service.ingest.session import ActorCounters
from learner.service.run.run_status import RunStatus
from learner.shared.observe.behavior_state import TrainerStats
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.view import Bottleneck, RunState
from tests.learner.service.ingest.parts import NAME, Parts, make_chunk, make_options

NEWS = TrainerStats(
    version=3,
    env_steps_trained=700,
    episodes=9,
    mean_return=21.5,
    numbers={"mean_lag": 0.5, "log_prob_error_max": 2e-7},
)
FULL = TrainerStats(version=4, env_steps_trained=900, episodes=100, mean_return=50.0, is_full=True)


def make_run_status(parts: Parts, **service: Any) -> RunStatus:
    """Makes the picture of a run with one behavior and one actor."""
    run_status = parts.run_status(make_options(**service).rollcast)
    parts.declared(parts.open().session)
    return run_status


def test_a_view_holds_what_all_parts_say() -> None:
    """A view has the trainer's counters, the actors' steps, the queue and the books."""
    parts = Parts(generation=2)
    run_status = make_run_status(parts, target_return=475.0)
    behavior = parts.behaviors.all()[0]
    parts.now += 7.0
    chunk = make_chunk(5)
    behavior.queue.put(
        chunk, session_id="session", actor_index=0, encoded_bytes=100, resident_bytes=400, received_at=parts.now
    )
    parts.ledger.enqueue(NAME, 5)
    parts.ledger.reject(NAME, "not_finite", 2)
    parts.ledger.lose(NAME, ROLLBACK, 0, queued=False)
    meters = RunMeters()
    meters.behavior(NAME).show_best(3.0, 70)
    run_status.take_stats(Stats(parts.now, {NAME: NEWS}, counts=meters.counts(), last_error="the disk is full"))

    view = run_status.run_view(RunState.TRAINING, "127.0.0.1:1")
    assert (view.run_id, view.generation, view.uptime_seconds, view.actors) == ("run", 2, 7.0, 1)
    assert (view.state, view.address, view.last_error) == (RunState.TRAINING, "127.0.0.1:1", "the disk is full")
    (row,) = view.behaviors
    assert (row.version, row.env_steps_trained, row.episodes, row.mean_return_100) == (3, 700, 9, 21.5)
    assert (row.numbers["mean_lag"], row.numbers["log_prob_error_max"], row.target_return) == (0.5, 2e-7, 475.0)
    assert (row.queued_steps, row.queue_capacity_bytes) == (5, behavior.queue.capacity_bytes)
    assert (row.numbers["best_return"], row.numbers["best_step"]) == (3.0, 70)
    assert row.queued_bytes > 0
    assert row.max_steps == behavior.settings.max_steps
    fates = {"trained": 0, "queued": 5, "dropped": {"not_finite": 2}, "lost": {}}
    assert row.books == {"received": 7, "duplicate": 0, "unknown": 0, **fates}


def test_the_failure_of_the_last_actor_is_shown_while_none_is_left() -> None:
    """The error of an actor that ended is in the view until another actor connects, or a trainer reports an error."""
    parts = Parts()
    run_status = make_run_status(parts)
    parts.sessions.last_failure = "actor a ended: environment 0 failed"
    assert run_status.run_view(RunState.TRAINING, "").last_error == ""
    for session in parts.sessions.live():
        parts.sessions.close(session, [])
    assert run_status.run_view(RunState.WAITING, "").last_error == "actor a ended: environment 0 failed"
    run_status.take_stats(Stats(parts.now, last_error="the disk is full"))
    assert run_status.run_view(RunState.WAITING, "").last_error == "the disk is full"


def test_steps_start_the_clock_and_make_the_rate() -> None:
    """The time of a behavior starts with its first step, and its rate is that of all actors."""
    parts = Parts()
    run_status = make_run_status(parts)
    session = parts.sessions.live()[0]
    for seconds, produced in ((3.0, 0), (1.0, 100), (2.0, 300)):
        parts.now += seconds
        parts.sessions.renew(session, [ActorCounters(0, produced=produced)])
        run_status.note_steps()
    view = run_status.behavior_state(parts.behaviors.all()[0])
    assert view.env_steps_taken == 300
    assert view.steps_per_second == pytest.approx(100.0)  # 300 steps in the 3 s between the first and the last look
    assert run_status.milestones(NAME).env_steps_taken == 300


def test_what_actors_gave_up_stands_beside_the_ledger() -> None:
    """Every step is received, discarded by its actor for a reason, or still with the actor."""
    parts = Parts()
    run_status = make_run_status(parts)
    behavior, session = parts.behaviors.all()[0], parts.sessions.live()[0]
    parts.ledger.enqueue(NAME, 50)
    session.accounts[0].received_steps = 50
    counters = ActorCounters(0, produced=90, open=9, unacked=20, acked=40, discarded={"env_error": 3, "cut": 0})
    parts.sessions.renew(session, [counters])
    state = run_status.behavior_state(behavior)
    assert state.actor_books == {"discarded": {"env_error": 3}, "dropped": {}, "outstanding": 37}
    assert (state.env_steps_taken, state.is_balanced) == (90, True)

    again = Parts(generation=2)
    run_status = make_run_status(again)
    again.ledger.load_state_dict(parts.ledger.state_dict())
    again.sessions.load_state_dict(parts.sessions.state_dict())
    behavior = again.behaviors.all()[0]
    kept = run_status.behavior_state(behavior)
    assert (kept.actor_books, kept.is_balanced) == (state.actor_books, True), "what it said before is not forgotten"
    resume = Resumption(session.session_id, session.epoch, 1, 0)
    back = again.sessions.open(Opening(session.actor_name, session.instance_id, resume)).session
    discarded, dropped = {"env_error": 3, "generation": 9}, {"generation": 20}
    report = ActorCounters(0, produced=100, acked=68, discarded=discarded, dropped=dropped)
    again.sessions.renew(back, [report])
    given_up = {"discarded": discarded, "dropped": dropped}
    assert run_status.behavior_state(behavior).actor_books == {**given_up, "outstanding": 18}
    again.sessions.close(back, [])
    ended = run_status.behavior_state(behavior)
    given_up["discarded"]["actor_gone"] = 18
    assert (ended.actor_books, ended.is_balanced) == ({**given_up, "outstanding": 0}, True)


def test_a_rollback_is_no_burst_of_speed() -> None:
    """Steps from before a restart do not count in the rate."""
    parts = Parts()
    run_status = make_run_status(parts)
    run_status.note_steps()
    parts.now += 1.0
    parts.ledger.lose(NAME, "rollback", 50_000, queued=False)
    parts.sessions.renew(parts.sessions.live()[0], [ActorCounters(0, produced=50_100)])
    run_status.note_steps()
    view = run_status.behavior_state(parts.behaviors.all()[0])
    assert view.env_steps_taken == 50_100
    assert view.steps_per_second == pytest.approx(100.0)


def test_the_clock_stands_while_nobody_can_act() -> None:
    """Pauses and time without actors count as time of the run, but not as active time."""
    parts = Parts()
    run_status = make_run_status(parts)
    session = parts.sessions.live()[0]
    parts.sessions.renew(session, [ActorCounters(0, produced=10)])
    run_status.note_steps()
    for seconds, is_connected, is_paused in ((1.0, True, False), (30.0, True, True), (50.0, False, False)):
        session.is_connected = is_connected
        parts.now += seconds
        run_status.take_stats(Stats(parts.now, is_paused=is_paused))
        run_status.note_steps()
    milestones = run_status.milestones(NAME)
    assert (milestones.wall_seconds, milestones.active_seconds) == (81.0, 1.0)


def test_the_target_is_noted_once() -> None:
    """Time and steps of the target are recorded once."""
    parts = Parts()
    run_status = make_run_status(parts)
    session = parts.sessions.live()[0]
    run_status.take_stats(Stats(parts.now, {NAME: FULL}))
    assert run_status.milestones(NAME).env_steps_to_target is None
    for steps in (400, 500):
        parts.sessions.renew(session, [ActorCounters(0, produced=steps)])
        run_status.take_stats(Stats(parts.now, {NAME: FULL}, frozenset({NAME})))
    assert run_status.milestones(NAME).env_steps_to_target == 400


def test_the_work_of_a_long_turn_counts_while_it_lasts() -> None:
    """A turn without a report counts as work while it lasts."""
    parts = Parts()
    run_status = make_run_status(parts)
    run_status.take_stats(Stats(parts.now, busy_seconds=5.0))
    parts.now += 1.0
    assert (run_status.busy_seconds, run_status.stats_age_seconds) == (5.0, 1.0)
    parts.now += 9.0
    assert (run_status.busy_seconds, run_status.stats_age_seconds) == (13.5, 10.0)


def test_an_evaluation_of_every_actor_is_what_holds_the_run_up() -> None:
    """While all actors evaluate, the evaluation is the bottleneck and no estimate is shown."""
    parts = Parts()
    run_status = make_run_status(parts)
    run_status.note_bottleneck(Bottleneck("actors", "they are slow"))
    assert run_status.bottleneck.name == "actors"
    run_status.take_stats(Stats(parts.now, obstacle="every actor plays"))
    run_status.note_bottleneck(Bottleneck("actors", "they are slow", actor_busy=0.5))
    assert run_status.bottleneck == Bottleneck("none", "every actor plays", actor_busy=0.5)


def test_a_restart_goes_on_with_the_same_numbers() -> None:
    """After a restart the status shows the checkpoint's counters, and its clock continues."""
    parts = Parts()
    run_status = make_run_status(parts, target_return=50.0)
    run_status.take_stats(Stats(parts.now, {NAME: FULL}, frozenset({NAME})))
    kept = run_status.state_dict()
    again = Parts(generation=2)
    run_status = make_run_status(again, target_return=50.0)
    run_status.load_state_dict(kept)
    view = run_status.behavior_state(again.behaviors.all()[0])
    assert (view.version, view.env_steps_trained, view.episodes, view.mean_return_100) == (4, 900, 100, 50.0)
    assert run_status.milestones(NAME).seconds_to_target == 0.0
