"""Tests the upload stream against a real server."""

from __future__ import annotations

from rollcast.errors import MalformedChunk
from rollcast.v1 import trajectory_pb2
from structlog.testing import capture_logs

from actor_client.endings import closing
from actor_client.exits import ExitCode
from tests.actor_client.connection.harness import Actor, acting
from tests.actor_client.scripted import PLENTY, ScriptedLearner, wait_until


def test_chunks_are_numbered_from_one_and_acked() -> None:
    """Chunks arrive once, in order, numbered without gaps, and their rows become acked."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        for rows in (3, 4, 5):
            actor.send(rows)
        actor.wait_acked()
        assert [chunk.sequence for chunk in learner.chunks] == [1, 2, 3]
        assert [chunk.rows for chunk in learner.chunks] == [3, 4, 5]
        assert [chunk.produced_steps for chunk in learner.chunks] == [3, 7, 12]
        assert actor.port.books.view().acked == 12


def test_lost_acks_are_made_good_without_loss_or_double_count() -> None:
    """A stream that breaks before acks arrive resumes at the learner's next sequence; each chunk counts once."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.acking = False
        learner.break_after = 3
        for _ in range(5):
            actor.send(2)
        wait_until(lambda: learner.session.epoch == 2)
        learner.acking = True
        wait_until(lambda: len(learner.chunks) == 5)
        learner.ack()
        actor.wait_acked()
        assert list(range(1, 6)) == [chunk.sequence for chunk in learner.chunks]
        assert learner.accepted == {learner.session.session_id: 10}
        assert actor.port.books.view().acked == 10
        assert learner.session.epoch == 2


def test_a_dead_connection_is_resumed_with_what_was_not_acked() -> None:
    """A learner that returns with the same sessions gets the unacked chunks again."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        actor.send(1)
        actor.wait_acked()
        learner.hang_up()
        for _ in range(3):
            actor.send(2)
        assert actor.port.books.view().unacked == 6
        learner.listen()
        actor.wait_acked()
        assert [chunk.sequence for chunk in learner.chunks] == [1, 2, 3, 4]
        assert learner.opened[-1].resume.acked_through == 1
        assert learner.opened[-1].resume.books[0].unacked_steps == 6


def test_out_of_step_credit_the_actor_waits() -> None:
    """Produced steps never exceed the credit, and new credit lets the actor continue."""
    with ScriptedLearner() as learner:
        learner.steps_through = 10
        with acting(learner) as actor:
            wait_until(lambda: actor.port.may_step(10))
            assert not actor.port.may_step(11)
            actor.send(10)
            actor.wait_acked()
            assert not actor.port.may_step(1)
            learner.steps_through = 12
            learner.ack()
            wait_until(lambda: actor.port.may_step(2))
            assert not actor.port.may_step(3)


def test_out_of_byte_credit_chunks_wait_in_the_window() -> None:
    """A chunk that exceeds the credit in bytes waits and stops further steps until there is credit."""
    with ScriptedLearner() as learner:
        learner.bytes_through = 0
        with acting(learner) as actor:
            learner.bytes_through = 1
            learner.ack()
            wait_until(lambda: actor.port.may_step(1))
            actor.send(5)
            assert not actor.port.may_step(1)
            assert not learner.chunks
            learner.bytes_through = PLENTY
            learner.ack()
            actor.wait_acked()
            wait_until(lambda: actor.port.may_step(1))
            assert len(learner.chunks) == 1


def test_a_hold_stops_and_its_end_releases() -> None:
    """No step is taken while any reason holds the behavior."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        wait_until(lambda: actor.port.may_step(1))
        learner.hold(trajectory_pb2.HOLD_REASON_BEHIND, active=True)
        wait_until(lambda: not actor.port.may_step(1))
        assert not actor.port.is_paused
        learner.hold(trajectory_pb2.HOLD_REASON_PAUSED, active=True)
        wait_until(lambda: actor.port.is_paused)
        learner.hold(trajectory_pb2.HOLD_REASON_BEHIND, active=False)
        learner.hold(trajectory_pb2.HOLD_REASON_LOCKSTEP, active=False)
        actor.send(1)
        actor.wait_acked()
        assert not actor.port.may_step(1)
        learner.hold(trajectory_pb2.HOLD_REASON_PAUSED, active=False)
        wait_until(lambda: actor.port.may_step(1))
        assert not actor.port.is_paused


def test_an_updating_hold_ends_with_its_version() -> None:
    """A hold with until_version ends when that version or a newer one acts."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.hold(trajectory_pb2.HOLD_REASON_UPDATING, active=True, until_version=2)
        wait_until(lambda: not actor.port.may_step(1))
        learner.publish("CartPole", 1)
        assert actor.take_policy().version == 1
        assert not actor.port.may_step(1)
        learner.publish("CartPole", 3)
        assert actor.take_policy().version == 3
        assert actor.port.may_step(1)


def test_holds_are_taken_over_at_each_opening_of_a_stream() -> None:
    """An opened stream replaces the holds of the previous one."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.hold(trajectory_pb2.HOLD_REASON_PAUSED, active=True)
        wait_until(lambda: not actor.port.may_step(1))
        learner.break_after = 1
        actor.send(1)
        wait_until(lambda: actor.port.may_step(1))
        learner.holds = [trajectory_pb2.Hold(behavior_index=0, reason=trajectory_pb2.HOLD_REASON_PAUSED, active=True)]
        learner.break_after = 1
        actor.send(1)
        wait_until(lambda: not actor.port.may_step(1))


def test_rejections_are_counted_and_the_rows_are_acked() -> None:
    """Rows that an ack rejects count as acked, with their number by reason, which the last line has."""
    with ScriptedLearner() as learner, acting(learner) as actor, capture_logs() as logs:
        learner.reject = "stale"
        for rows in (0, 4, 3):
            actor.send(rows)
        actor.wait_acked()
        wait_until(lambda: actor.link.rejected == {"stale": 7})
        assert actor.port.books.view().acked == 7
        with closing(actor.link):
            pass
    assert [entry["rows"] for entry in logs if entry["event"] == "rejected"] == [{"stale": 7}]
    assert [entry["acked"] for entry in logs if entry["event"] == "books"] == [7]


def test_a_refusal_in_the_midst_of_writes_is_seen() -> None:
    """The actor ends with the learner's message although grpc.aio hides it when a stream ends during a write."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.break_after = 10
        learner.break_with = MalformedChunk("column reward is float64; float32 is required")
        for _ in range(40):
            actor.send(2000)
        wait_until(lambda: actor.link.error is not None)
        assert actor.link.error is not None
        assert actor.link.error.exit_code is ExitCode.MALFORMED
        assert "float64" in actor.link.error.message
        wait_until(lambda: learner.session.closed is not None)


def test_uploads_and_policies_have_connections_of_their_own() -> None:
    """Uploads and policies use two TCP connections, so that a policy does not delay acks."""
    with ScriptedLearner() as learner, acting(learner):
        assert set(learner.upload_peers).isdisjoint(learner.policy_peers)


def test_a_sequence_that_cannot_be_sent_loses_the_session() -> None:
    """If the learner expects a chunk that was already acked, a new session starts."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        actor.send(3)
        actor.wait_acked()
        old = learner.session
        old.acked_through = 0
        learner.break_after = 1
        actor.send(2)
        wait_until(lambda: actor.port.session_lost)
        assert actor.port.books.view().dropped == {"session_lost": 2}
        actor.port.begin_session()
        assert learner.session is not old


def test_teams_of_one_behavior_share_credit_and_have_books_of_their_own() -> None:
    """Teams share the credit of their behavior, and the learner gets the sum of their books."""
    with ScriptedLearner() as learner:
        learner.steps_through = 10
        with acting(learner) as first:
            second = Actor(first.link, first.link.declare(first.spec, 1, 2, 20.0), first.spec)
            second.take_policy()
            first.send(6)
            second.send(3)
            first.wait_acked()
            second.wait_acked()
            assert first.port.may_step(1)
            assert not second.port.may_step(2)
            assert [chunk.team for chunk in learner.chunks] == [0, 1]
            assert learner.chunks[-1].produced_steps == 9
            assert learner.chunks[-1].agents == 3
