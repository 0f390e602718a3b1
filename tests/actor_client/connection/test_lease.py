"""Renewals: they come whatever the stepping thread does, and carry balanced books."""

from __future__ import annotations

import time

import grpc
from rollcast.errors import WireError

from tests.actor_client.connection.harness import acting
from tests.actor_client.scripted import ScriptedLearner, wait_until


def test_renewals_go_on_while_the_stepping_thread_is_blocked() -> None:
    """A step that takes longer than the lease does not cost the session."""
    with ScriptedLearner() as learner:
        learner.lease_seconds = 0.3
        with acting(learner):
            before = learner.session.renewals
            time.sleep(1.0)  # the stepping thread is in a long step
            assert learner.session.renewals >= before + 3


def test_renewals_report_books_and_the_acting_policy() -> None:
    """The learner hears what became of each step, which version acts, and how many agents there are."""
    with ScriptedLearner() as learner:
        learner.lease_seconds = 0.3
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
    """Trouble that passes costs neither the streams nor the session."""
    with ScriptedLearner() as learner:
        learner.lease_seconds = 0.3
        learner.fail_renew = [WireError("busy", code=grpc.StatusCode.UNAVAILABLE)] * 2
        with acting(learner):
            wait_until(lambda: learner.session.renewals >= 2)
            assert learner.session.epoch == 1


def test_a_learner_that_answers_no_renewal_for_a_whole_lease_is_left() -> None:
    """A connection that is dead without the network saying so is made anew; the session goes on."""
    with ScriptedLearner() as learner:
        learner.lease_seconds = 0.3
        learner.fail_renew = [WireError("busy", code=grpc.StatusCode.UNAVAILABLE)] * 3
        with acting(learner) as actor:
            wait_until(lambda: learner.session.epoch == 2)
            wait_until(lambda: learner.session.renewals >= 1)
            actor.send(2)
            actor.wait_acked()
