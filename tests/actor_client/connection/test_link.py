"""Tests the link: start, wait, stop and close."""

from __future__ import annotations

import threading

import pytest

from actor_client.connection.link import LearnerLink
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.connection.harness import acting, linked, load
from tests.actor_client.scripted import ScriptedLearner, wait_until
from tests.protos.builders import CARTPOLE


def test_open_answers_what_the_run_says() -> None:
    """`open` returns the learner's seed, index, behaviors and limits."""
    with ScriptedLearner() as learner:
        learner.behaviors = ("CartPole", "Pendulum")
        with linked(learner, actor_name="lab-7") as link:
            run = link.open(20.0)
            assert run.behaviors == ("CartPole", "Pendulum")
            assert (link.run_seed, link.actor_index) == (7, 0)
            assert run.limits.max_chunk_bytes == 4 << 20
            assert run.limits.max_chunk_age_seconds == 0.02
        assert learner.opened[0].actor_name == "lab-7"
        assert learner.opened[0].instance_id


def test_a_stop_ends_waiting_at_once() -> None:
    """A stop ends the wait for a learner immediately, with exit code 0."""
    with linked(ScriptedLearner(1)) as link:
        threading.Timer(0.1, link.request_stop, ("SIGTERM",)).start()
        with pytest.raises(ActorError) as stopped:
            link.declare(CARTPOLE, 0, 1, None)
        assert stopped.value.exit_code is ExitCode.OK
        assert "SIGTERM" in stopped.value.message


def test_a_stop_before_the_start_is_kept() -> None:
    """A stop before the start takes effect once the link starts."""
    link = LearnerLink("127.0.0.1:1", actor_name="actor", load=load, client_version="test")
    link.request_stop("SIGINT")
    link.start()
    wait_until(lambda: link.stopping)
    link.close()


def test_wait_returns_when_something_changes() -> None:
    """Credit wakes the stepping thread from `wait`."""
    with ScriptedLearner() as learner:
        learner.steps_through = 0
        with acting(learner) as actor:
            learner.steps_through = 5
            threading.Timer(0.1, learner.ack).start()
            while not actor.port.may_step(5):
                actor.link.wait(20.0)


def test_closing_waits_for_the_last_acks() -> None:
    """Closing waits until the last chunks are acked."""
    with ScriptedLearner() as learner:
        with acting(learner) as actor:
            learner.acking = False
            actor.send(5)
            wait_until(lambda: len(learner.chunks) == 1)
            threading.Timer(0.2, learner.ack).start()
            actor.link.close()
            assert actor.port.books.view().acked == 5
        closed = learner.session.closed
        assert closed is not None
        assert closed.books[0].acked_steps == 5


def test_closing_does_not_wait_for_ever_for_acks() -> None:
    """If the learner never acks, closing ends anyway and counts the rest as unacked."""
    with ScriptedLearner() as learner:
        with acting(learner, flush_seconds=0.3) as actor:
            learner.acking = False
            actor.send(5)
            actor.link.close()
        closed = learner.session.closed
        assert closed is not None
        assert closed.books[0].unacked_steps == 5


def test_calls_after_the_end_do_no_harm() -> None:
    """Closing may be repeated, and all calls are harmless after the end."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        actor.link.close()
        actor.link.close()
        actor.send(2)
        assert not actor.port.may_step(1) or actor.link.stopping
        assert actor.port.take_policy() is None
        actor.link.wait(0.01)
        actor.link.request_stop("late")
