"""Tests the actor's connection against the learner's own service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from actor_client.connection.link import LearnerLink
from learner.service.ingest.ledger import LedgerBooks
from tests.actor_client.connection.harness import Actor, load
from tests.actor_client.real_learner import RealLearner
from tests.actor_client.scripted import wait_until
from tests.learner.service.calls.samples import make_policy, make_spec


@contextmanager
def acting(learner: RealLearner) -> Iterator[Actor]:
    """Starts an actor with version 0 and checks its books at the end."""
    link = LearnerLink(learner.address, actor_name="actor", load=load, client_version="test")
    link.start()
    try:
        port = link.declare(make_spec(), 0, 1, 20.0)
        actor = Actor(link, port, make_spec())
        learner.publish(make_policy(0, generation=learner.generation))
        actor.take_policy()
        yield actor
    finally:
        link.close()
    assert port.books.balanced


def work(actor: Actor, chunks: int, rows: int = 20) -> None:
    """Steps and sends as credit allows."""
    for _ in range(chunks):
        wait_until(lambda: actor.port.may_step(rows))
        actor.send(rows)


def books_of(learner: RealLearner) -> LedgerBooks:
    """Returns the learner's books after checking that they balance."""
    books = learner.learner.ledger.books("CartPole")
    assert books.balanced
    return books


def test_everything_produced_is_received_once() -> None:
    """Both books balance and agree, and every step is received once."""
    with RealLearner() as learner, acting(learner) as actor:
        learner.ahead_limit_steps = 100
        work(actor, 50)
        actor.wait_acked()
        wait_until(lambda: books_of(learner).trained == 1000)
        assert actor.port.books.view().acked == 1000
        actor.link.close()
        wait_until(lambda: not learner.learner.sessions.live())


def test_a_learner_started_anew_from_its_checkpoint_goes_on_with_the_actor() -> None:
    """A restarted learner resumes the session in a new generation; steps in flight are counted on both sides."""
    with RealLearner() as learner, acting(learner) as actor:
        work(actor, 5)
        actor.wait_acked()
        wait_until(lambda: books_of(learner).trained == 100)
        state = learner.stop()
        actor.send(7)
        actor.port.books.produced(3)
        learner.start(state)
        wait_until(lambda: actor.port.books.view().dropped == {"generation": 7})
        learner.publish(make_policy(0, generation=2))
        assert actor.take_policy().generation == 2
        actor.port.books.discard("generation", 3)
        work(actor, 60)
        actor.wait_acked()
        wait_until(lambda: books_of(learner).trained == 1300)
        assert not actor.port.session_lost
        assert actor.port.books.view().acked == 1300


def test_a_final_drain_ends_actor_and_learner_in_good_order() -> None:
    """On a final drain the learner waits for its actors, which leave with everything acked."""
    with RealLearner() as learner, acting(learner) as actor:
        work(actor, 5)

        def leave() -> None:
            wait_until(lambda: actor.link.stopping)
            actor.send(3)
            actor.link.close()

        thread = threading.Thread(target=leave)
        thread.start()
        learner.drain(final=True)
        thread.join()
        assert actor.port.books.view().acked == 103
        assert books_of(learner).received == 103
        assert actor.link.error is None
