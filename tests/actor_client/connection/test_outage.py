"""Tests what an actor keeps while its learner is away, against the scripted learner."""

from __future__ import annotations

import pytest

from actor_client.exits import ActorError, ExitCode
from tests.actor_client.connection.harness import Actor, acting, linked
from tests.actor_client.scripted import ScriptedLearner, wait_until
from tests.protos.builders import CARTPOLE


def away(learner: ScriptedLearner, actor: Actor) -> None:
    """Stops the learner, and waits until the actor has noticed."""
    learner.hang_up()
    wait_until(lambda: not actor.link.snapshot().is_uploading)


def test_a_received_chunk_whose_ack_was_lost_is_acked() -> None:
    """A restarted learner names what it received: the actor counts that as acked, and gives up only the rest."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.acking, learner.settles = False, True
        actor.send(5)
        wait_until(lambda: len(learner.chunks) == 1)
        away(learner, actor)
        actor.send(7)
        learner.restart()
        wait_until(lambda: len(learner.opened) == 2)
        wait_until(lambda: actor.port.books.view().unacked == 0)
        view = actor.port.books.view()
        assert (view.acked, dict(view.dropped)) == (5, {"generation": 7})


def test_steps_of_an_outage_are_sent_after_it() -> None:
    """With a ring the actor may step without a connection; its steps are spooled, and sent when the learner is back."""
    with ScriptedLearner() as learner:
        learner.replay = learner.settles = True
        with acting(learner, outage_bytes=10**6) as actor:
            actor.send(5)
            actor.wait_acked()
            assert actor.port.may_step(1)
            away(learner, actor)
            assert actor.port.may_step(1)
            actor.send(7)
            actor.send(8)
            view = actor.port.books.view()
            assert (view.spooled, view.unacked, view.acked) == (15, 0, 5)
            assert actor.link.snapshot().chunks_unacked == 0
            snapshot = actor.link.snapshot()
            assert (snapshot.books.spooled, snapshot.spooled_bytes > 0) == (15, True)
            learner.steps_through = 4  # the new start has no room yet
            learner.restart()
            wait_until(lambda: len(learner.opened) == 2 and actor.link.snapshot().is_uploading)
            assert learner.opened[-1].resume.books[0].spooled_steps == 15
            assert actor.port.books.view().spooled == 15
            assert not actor.port.may_step(1), "spooled steps leave first"
            learner.publish(CARTPOLE.name, 0)
            actor.take_policy()
            learner.steps_through = 10**6
            learner.ack()
            wait_until(lambda: actor.port.books.view().acked == 20)
            assert [(chunk.sequence, chunk.rows, chunk.generation) for chunk in learner.chunks[-2:]] == [
                (2, 7, 1),
                (3, 8, 1),
            ]
            assert not actor.port.books.view().dropped
            wait_until(lambda: actor.port.may_step(1))


def test_without_a_ring_an_actor_keeps_its_window() -> None:
    """Without --outage-bytes the actor uses up its credit, and what it sends is kept over a restart if the trainer has replay memory."""
    with ScriptedLearner() as learner:
        learner.replay = learner.settles = True
        with acting(learner) as actor:
            away(learner, actor)
            actor.send(6)
            assert (actor.port.books.view().unacked, actor.port.books.view().spooled) == (6, 0)
            learner.restart()
            wait_until(lambda: actor.port.books.view().acked == 6)


def test_a_lost_session_ends_what_was_kept() -> None:
    """What was kept for a session that the learner no longer knows is dropped{session_lost}."""
    with ScriptedLearner() as learner:
        learner.replay = True
        with acting(learner, outage_bytes=10**6) as actor:
            away(learner, actor)
            actor.send(9)
            learner.restart(forget=True)
            wait_until(lambda: actor.port.session_lost)
            assert actor.port.books.view().dropped == {"session_lost": 9}
            actor.port.begin_session()


def test_a_ring_is_refused_where_steps_grow_old() -> None:
    """A trainer without replay memory cannot use old steps: the actor ends with the flag, the behavior and the reason."""
    with ScriptedLearner() as learner, linked(learner, outage_bytes=5) as link:
        with pytest.raises(ActorError, match=rf"--outage-bytes 5 .* behavior {CARTPOLE.name}: .*replay") as caught:
            link.declare(CARTPOLE, team=0, agents=1, timeout_seconds=20.0)
        assert caught.value.exit_code == ExitCode.REFUSED
        wait_until(lambda: learner.session.closed is not None)
