"""Tests renewals of the lease."""

from __future__ import annotations

import time

import grpc
import pytest
from rollcast.errors import WireError
from rollcast.v1 import session_pb2

from actor_client.connection import connector
from actor_client.connection.state import SessionTimes
from actor_client.counts import ConnectionCounts, RolloutCounts
from tests.actor_client.connection.harness import acting
from tests.actor_client.scripted import ScriptedLearner, wait_until


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the first renewal come at once."""
    monkeypatch.setattr(connector, "FIRST_REPORT_SECONDS", 0.01)


def test_renewals_go_on_while_the_stepping_thread_is_blocked() -> None:
    """Renewals continue while the stepping thread does not call the link, as often as the learner wants them."""
    with ScriptedLearner() as learner:
        learner.lease_seconds, learner.report_seconds = 600.0, 0.05
        with acting(learner):
            wait_until(lambda: learner.session.renewals >= 5)


def test_renewals_report_books_and_the_acting_policy() -> None:
    """Renewals report the books, the acting version and the number of agents."""
    with ScriptedLearner() as learner:
        learner.report_seconds = 0.05
        with acting(learner) as actor:
            actor.port.books.produced(3)
            actor.port.books.discard("env_error", 2)
            actor.send(5)
            actor.wait_acked()
            wait_until(lambda: bool(learner.session.books) and learner.session.books[0].acked_steps == 5)
            books = learner.session.books[0]
            assert (books.produced_steps, books.open_steps, books.unacked_steps, books.agents) == (8, 1, 0, 1)
            assert [(count.reason, count.steps) for count in books.discarded] == [("env_error", 2)]
            assert (learner.session.policies[0].generation, learner.session.policies[0].version) == (1, 0)


def test_a_renewal_that_fails_is_tried_again_without_a_new_session() -> None:
    """A failed renewal is retried without a new session."""
    with ScriptedLearner() as learner:
        learner.lease_seconds = 3.0
        learner.fail_renew = [WireError("busy", code=grpc.StatusCode.UNAVAILABLE)] * 2
        with acting(learner):
            wait_until(lambda: learner.session.renewals >= 2)
            assert learner.session.epoch == 1


def test_a_learner_that_answers_no_renewal_for_a_whole_lease_is_left() -> None:
    """The actor reconnects if no renewal was answered for a whole lease, and resumes the session."""
    with ScriptedLearner() as learner:
        learner.lease_seconds = 0.3
        learner.fail_renew = [WireError("busy", code=grpc.StatusCode.UNAVAILABLE)] * 4
        with acting(learner) as actor:
            wait_until(lambda: learner.session.epoch >= 2)
            wait_until(lambda: learner.session.renewals >= 1)
            actor.send(2)
            actor.wait_acked()


def test_renewals_say_where_the_time_goes() -> None:
    """Renewals report the seconds of each kind of wait, including the current one, and the newest round trip."""
    with ScriptedLearner() as learner:
        learner.report_seconds = 0.05
        with acting(learner) as actor:
            wait_until(lambda: learner.session.renewals >= 1)
            assert not learner.session.times.HasField("round_trip_seconds")
            counts = actor.link.counts
            counts.wait_seconds["credit"] += 0.125
            counts.waiting = "hold", time.monotonic()
            wait_until(lambda: learner.session.times.hold_seconds > 0.2)
            counts.waited(time.monotonic())
            actor.send(5)
            actor.wait_acked()
            wait_until(lambda: learner.session.times.round_trip_seconds > 0)
            times = learner.session.times
            assert times.credit_seconds == pytest.approx(0.125)
            assert (times.policy_seconds, times.connection_seconds) == (0.0, 0.0)
            assert times.credit_seconds + times.hold_seconds <= counts.waited_seconds
            assert times.round_trip_seconds == actor.link.snapshot().connection.newest_round_trip_seconds


def test_the_times_of_a_lost_session_do_not_go_on() -> None:
    """A new session starts its times at zero; a resumed one continues them."""
    rollout, connection, now = RolloutCounts(), ConnectionCounts(), [100.0]
    times = SessionTimes(rollout, connection, lambda: now[0])
    rollout.wait_seconds["policy"] = 2.0
    now[0] = 103.0
    assert times.report() == session_pb2.ActorTimes(wall_seconds=3.0, policy_seconds=2.0)
    times.begin()
    now[0] = 104.0
    assert times.report() == session_pb2.ActorTimes(wall_seconds=1.0)
