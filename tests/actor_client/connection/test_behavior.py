"""Tests chunks that are larger than the learner allows."""

from __future__ import annotations

from structlog.testing import capture_logs

from actor_client.connection.behavior import MAX_TOO_LARGE
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.connection.harness import Actor, acting
from tests.actor_client.scripted import ScriptedLearner, wait_until


def failure_of(actor: Actor) -> ActorError:
    """Waits until the actor must end, and returns why."""
    wait_until(lambda: actor.link.stopping)
    assert actor.link.error is not None
    return actor.link.error


def test_one_step_that_does_not_fit_ends_the_actor() -> None:
    """A single step that exceeds the limit ends the actor; the message and the learner get sizes and setting."""
    with ScriptedLearner() as learner:
        learner.max_chunk_bytes = 300
        with acting(learner) as actor:
            actor.send(1)
            failure = failure_of(actor)
            size_bytes = actor.port.books.view().dropped
            actor.link.close(message=failure.message)
        assert failure.exit_code is ExitCode.REFUSED
        assert "the learner allows 300 (rollcast.max_chunk_bytes in its run file)" in failure.message
        assert size_bytes == {"too_large": 1}
        assert not learner.chunks
        assert learner.session.closed is not None


def test_nothing_but_chunks_that_do_not_fit_ends_the_actor() -> None:
    """A few oversized chunks are dropped, counted and reported once; a long series of them ends the actor."""
    with ScriptedLearner() as learner:
        learner.max_chunk_bytes = 1000
        with acting(learner) as actor, capture_logs() as logs:
            for _ in range(MAX_TOO_LARGE - 1):
                actor.send(100)
            actor.send(2)
            actor.wait_acked()
            for _ in range(MAX_TOO_LARGE - 1):
                actor.send(100)
            assert not actor.link.stopping
            actor.send(100)
            failure = failure_of(actor)
        assert failure.exit_code is ExitCode.REFUSED
        assert failure.message.startswith("a chunk of 100 steps of behavior CartPole takes ")
        assert [log["event"] for log in logs if log["event"].startswith("chunk")] == [
            "chunk_too_large",
            "chunk_dropped",
        ]
        assert [chunk.rows for chunk in learner.chunks] == [2]
