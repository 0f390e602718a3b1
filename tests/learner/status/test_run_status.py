"""The picture of a run: put together from parts that live in different threads, and kept over a restart."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from learner.ingest.ledger import ROLLBACK
from learner.ingest.session import ActorCounters
from learner.ingest.sessions import Opening, Resumption
from learner.link.experience import QueuedChunk
from learner.observe.view import RunState
from learner.status.run_status import RunStatus, TrainerStats
from tests.learner.ingest.parts import NAME, Parts, make_chunk, make_options

NEWS = TrainerStats(
    version=3, env_steps_trained=700, episodes=9, mean_return=21.5, mean_lag=0.5, log_prob_error_max=2e-7
)
FULL = TrainerStats(version=4, env_steps_trained=900, episodes=100, mean_return=50.0, is_full=True)


def make_run_status(parts: Parts, **service: Any) -> RunStatus:
    """Makes the picture of a run with one behavior and one actor."""
    settings = make_options(**service).rollcast
    run_status = RunStatus(
        parts.behaviors, parts.sessions, parts.ledger, settings, run_id="run", generation=2, clock=lambda: parts.now
    )
    parts.declared(parts.open().session)
    return run_status


def test_a_view_holds_what_all_parts_say() -> None:
    """Counters of the trainer, steps of the actors, the queue and the books stand side by side."""
    parts = Parts()
    run_status = make_run_status(parts, target_return=475.0)
    behavior = parts.behaviors.all()[0]
    parts.now += 7.0
    chunk = make_chunk(5)
    behavior.queue.put(QueuedChunk(chunk, "session", 0, 100, parts.now))
    parts.ledger.enqueue(NAME, 5)
    parts.ledger.reject(NAME, "not_finite", 2)
    parts.ledger.lose(NAME, ROLLBACK, 0, queued=False)
    assert not run_status.note_trainer(behavior, NEWS)
    run_status.last_error = "the disk is full"

    view = run_status.run_view(RunState.TRAINING, "127.0.0.1:1")
    assert (view.run_id, view.generation, view.uptime_seconds, view.actors) == ("run", 2, 7.0, 1)
    assert (view.state, view.address, view.last_error) == (RunState.TRAINING, "127.0.0.1:1", "the disk is full")
    (row,) = view.behaviors
    assert (row.version, row.env_steps_trained, row.episodes, row.mean_return_100) == (3, 700, 9, 21.5)
    assert (row.mean_lag, row.log_prob_error_max, row.target_return) == (0.5, 2e-7, 475.0)
    assert (row.queued_steps, row.queue_capacity_bytes) == (5, behavior.queue.capacity_bytes)
    assert row.queued_bytes > 0
    assert row.max_steps == behavior.settings.max_steps
    fates = {"trained": 0, "queued": 5, "dropped": {"not_finite": 2}, "lost": {}}
    assert row.books == {"received": 7, "duplicate": 0, "unknown": 0, **fates}


def test_steps_start_the_clock_and_make_the_rate() -> None:
    """The time of a behavior runs from the first step that any actor took; its rate is that of all actors."""
    parts = Parts()
    run_status = make_run_status(parts)
    session = parts.sessions.live()[0]
    for seconds, produced in ((3.0, 0), (1.0, 100), (2.0, 300)):
        parts.now += seconds
        parts.sessions.renew(session, [ActorCounters(0, produced=produced)])
        run_status.note_steps()
    view = run_status.behavior_view(parts.behaviors.all()[0])
    assert view.env_steps_taken == 300
    assert view.steps_per_second == pytest.approx(100.0)  # 300 steps in the 3 s between the first and the last look
    assert run_status.milestones(NAME).env_steps_taken == 300


def test_what_actors_gave_up_stands_beside_the_ledger() -> None:
    """Every step that was taken has a place: received, given up by its actor for a reason, or still with it."""
    parts = Parts()
    run_status = make_run_status(parts)
    behavior, session = parts.behaviors.all()[0], parts.sessions.live()[0]
    parts.ledger.enqueue(NAME, 50)
    counters = ActorCounters(0, produced=90, open=9, unacked=20, acked=40, discarded={"env_error": 3, "cut": 0})
    parts.sessions.renew(session, [counters])
    assert run_status.actor_numbers(behavior) == {"discarded": {"env_error": 3}, "dropped": {}, "outstanding": 37}

    again = Parts(generation=2)
    run_status = make_run_status(again)
    again.sessions.load_state_dict(parts.sessions.state_dict())
    behavior = again.behaviors.all()[0]
    assert run_status.actor_numbers(behavior)["discarded"] == {"env_error": 3}, "what it said before is not forgotten"
    resume = Resumption(session.session_id, session.epoch, 1, 0)
    back = again.sessions.open(Opening(session.actor_name, session.instance_id, resume)).session
    discarded, dropped = {"env_error": 3, "generation": 9}, {"generation": 20}
    report = ActorCounters(0, produced=100, acked=68, discarded=discarded, dropped=dropped)
    again.sessions.renew(back, [report])
    assert run_status.actor_numbers(behavior) == {"discarded": discarded, "dropped": dropped, "outstanding": 68}
    again.ledger.enqueue(NAME, 68)
    again.sessions.close(back, [])
    assert run_status.actor_numbers(behavior) == {"discarded": discarded, "dropped": dropped, "outstanding": 0}


def test_a_rollback_is_no_burst_of_speed() -> None:
    """Steps that were taken before a restart, and are told after it, do not count as taken lately."""
    parts = Parts()
    run_status = make_run_status(parts)
    run_status.note_steps()
    parts.now += 1.0
    parts.ledger.lose(NAME, "rollback", 50_000, queued=False)
    parts.sessions.renew(parts.sessions.live()[0], [ActorCounters(0, produced=50_100)])
    run_status.note_steps()
    view = run_status.behavior_view(parts.behaviors.all()[0])
    assert view.env_steps_taken == 50_100
    assert view.steps_per_second == pytest.approx(100.0)


def test_the_clock_stands_while_nobody_can_act() -> None:
    """Pauses and time without a connected actor are part of the time of a run, and not of its active time."""
    parts = Parts()
    run_status = make_run_status(parts)
    session = parts.sessions.live()[0]
    parts.sessions.renew(session, [ActorCounters(0, produced=10)])
    run_status.note_steps()
    for seconds, is_connected, is_paused in ((1.0, True, False), (30.0, True, True), (50.0, False, False)):
        session.is_connected = is_connected
        parts.now += seconds
        run_status.note_steps(is_paused=is_paused)
    milestones = run_status.milestones(NAME)
    assert (milestones.wall_seconds, milestones.active_seconds) == (81.0, 1.0)


@pytest.mark.parametrize(
    ("news", "target", "expected"),
    [
        (FULL, 50.0, True),
        (FULL, 50.1, False),
        (FULL, None, False),
        (TrainerStats(mean_return=99.0), 50.0, False),
        (TrainerStats(is_full=True), 50.0, False),
    ],
)
def test_the_target_is_reached_by_a_full_mean_only(news: TrainerStats, target: float | None, expected: bool) -> None:
    """The first few episodes are luck: the mean counts once it is over as many as it is meant to be."""
    parts = Parts()
    run_status = make_run_status(parts, **({} if target is None else {"target_return": target}))
    parts.sessions.renew(parts.sessions.live()[0], [ActorCounters(0, produced=400)])
    assert run_status.note_trainer(parts.behaviors.all()[0], news) is expected
    assert run_status.milestones(NAME).env_steps_to_target == (400 if expected else None)


def test_a_restart_goes_on_with_the_same_numbers() -> None:
    """Before any trainer is there again, the status shows the counters of the checkpoint, and its clock goes on."""
    parts = Parts()
    run_status = make_run_status(parts, target_return=50.0)
    run_status.note_trainer(parts.behaviors.all()[0], FULL)
    milestones, news = run_status.milestone_states(), run_status.news_states()
    again = Parts(generation=2)
    run_status = make_run_status(again, target_return=50.0)
    run_status.load_milestones(milestones)
    run_status.load_news(news)
    view = run_status.behavior_view(again.behaviors.all()[0])
    assert (view.version, view.env_steps_trained, view.episodes, view.mean_return_100) == (4, 900, 100, 50.0)
    assert run_status.milestones(NAME).seconds_to_target == 0.0


def test_what_was_not_saved_by_a_picture_is_refused() -> None:
    """Values that make no sense are an error, and never numbers on the screen."""
    run_status = make_run_status(Parts())
    with pytest.raises(ValueError, match="wall_seconds"):
        run_status.load_milestones({NAME: {"wall_seconds": -1.0}})
    with pytest.raises(TypeError):
        run_status.load_news({NAME: {"no_such_counter": 1}})


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Lets threads take turns after every few instructions, so that a race is no matter of luck."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_looks_from_other_threads_do_no_harm() -> None:
    """The trainer thread saves while behaviors are declared and looked at elsewhere."""
    parts = Parts()
    run_status = make_run_status(parts)
    stop, failures = threading.Event(), list[RuntimeError]()

    def save() -> None:
        try:
            while not stop.is_set():
                run_status.milestone_states()
                run_status.news_states()
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    for number in range(2000):
        run_status.milestones(f"behavior {number}")
    stop.set()
    thread.join()
    assert failures == []
