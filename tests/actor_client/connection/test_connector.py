"""Tests the life of a connection: disconnects, restarts, lost sessions, farewells and refusals."""

from __future__ import annotations

import time

import grpc
import pytest
from rollcast.errors import (
    SessionExpired,
    SessionFenced,
    SpecMismatch,
    StreamSuperseded,
    TooManySessions,
    WireError,
)
from rollcast.v1 import session_pb2
from structlog.testing import capture_logs

from actor_client.connection import connector
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.connection.harness import acting, linked
from tests.actor_client.scripted import ScriptedLearner, wait_until
from tests.protos.builders import CARTPOLE


def test_a_new_generation_drops_the_window_and_waits_for_its_policy() -> None:
    """After a restart of the learner the actor drops and counts unacked chunks, and numbers chunks as told."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        actor.send(2)
        actor.wait_acked()
        actor.port.books.produced(3)  # open rows; the recorder gives them up when it swaps policies
        learner.hang_up()
        actor.send(4)
        learner.restart()
        wait_until(lambda: actor.port.books.view().dropped == {"generation": 4})
        assert actor.port.books.view().acked == 2
        assert not actor.port.may_step(1)
        assert not actor.port.session_lost
        actor.send(1, generation=1)
        assert actor.port.books.view().dropped == {"generation": 5}
        learner.publish("CartPole", 0)
        assert actor.take_policy().generation == 2
        wait_until(lambda: actor.port.may_step(1))
        actor.port.books.discard("generation", 3)
        actor.send(6)
        actor.wait_acked()
        assert [(chunk.sequence, chunk.generation) for chunk in learner.chunks] == [(1, 1), (2, 2)]
        resume = learner.opened[-1].resume
        assert (resume.epoch, resume.generation, resume.acked_through) == (1, 1, 1)


def test_a_lost_session_begins_anew_with_fresh_books() -> None:
    """An actor whose session was forgotten gets a new one and discards its open rows and unacked chunks."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        actor.send(2)
        actor.wait_acked()
        old_books = actor.port.books
        old_books.produced(3)
        learner.hang_up()
        actor.send(4)
        learner.restart(forget=True)
        wait_until(lambda: actor.port.session_lost)
        assert not actor.port.may_step(1)
        actor.send(1, generation=2)
        old_books.discard("session_lost", 3)
        actor.port.begin_session()
        view = old_books.view()
        assert view.balanced
        assert (view.dropped, view.discarded, view.acked) == ({"session_lost": 5}, {"session_lost": 3}, 2)
        assert not actor.port.session_lost
        assert actor.port.books.produced_steps == 0
        learner.publish("CartPole", 0)
        actor.take_policy()
        wait_until(lambda: actor.port.may_step(1))
        actor.send(6)
        actor.wait_acked()
        assert (learner.chunks[-1].sequence, learner.chunks[-1].rows, learner.chunks[-1].produced_steps) == (1, 6, 6)


def test_an_expired_session_in_the_same_run_is_replaced() -> None:
    """An expired session is replaced by a new one in the same run, and the policy is sent again."""
    with ScriptedLearner() as learner:
        learner.report_seconds = 0.05
        with acting(learner) as actor:
            learner.fail_renew = [SessionExpired("the lease ran out")]
            learner.sessions.clear()
            wait_until(lambda: actor.port.session_lost)
            actor.port.begin_session()
            assert actor.take_policy().version == 0
            wait_until(lambda: actor.port.may_step(1))


def test_a_session_lost_twice_before_the_actor_noticed_counts_once() -> None:
    """If a session is lost twice before the actor notices, it continues with the newest one and empty books."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        for times in (1, 2):
            learner.restart(forget=True)
            wait_until(lambda times=times: len(learner.declared) == 1 + times)  # type: ignore[misc]
        actor.port.begin_session()
        assert not actor.port.session_lost
        assert actor.port.books.view().produced == 0


def test_the_quiet_ends_with_its_time() -> None:
    """An actor warns once its learner is unreachable for longer than the quiet period, and not before."""
    with capture_logs() as logs, linked(ScriptedLearner(1), quiet_seconds=600.0) as link:
        wait_until(lambda: link.reconnects >= 2)
    assert not [entry for entry in logs if entry["event"] == "learner_unreachable"]
    with capture_logs() as logs, linked(ScriptedLearner(1), quiet_seconds=0.3):
        wait_until(lambda: any(entry["event"] == "learner_unreachable" for entry in logs))


def test_only_a_long_silence_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor that waits for its learner says so as information, and warns after a minute."""
    for seconds, level in ((600.0, "info"), (0.0, "warning")):
        monkeypatch.setattr(connector, "PATIENT_SECONDS", seconds)
        with capture_logs() as logs, linked(ScriptedLearner(1)):
            wait_until(lambda logs=logs: any(each["event"] == "learner_unreachable" for each in logs))  # type: ignore[misc]
        levels = {entry["log_level"] for entry in logs if entry["event"] == "learner_unreachable"}
        assert levels == {level}


def test_an_unreachable_learner_is_found_once_it_is_there() -> None:
    """An actor that starts first connects once the learner listens, and says once in each outage what to do."""
    learner = ScriptedLearner()
    with learner:
        pass
    with capture_logs() as logs, linked(learner) as link:
        wait_until(lambda: link.reconnects >= 2)
        with learner:
            assert link.open(20.0).run_id == "run"
            assert link.declare(CARTPOLE, 0, 1, 20.0).behavior_index == 0
            before = link.reconnects  # on a busy machine, there were more
        wait_until(lambda: link.reconnects >= before + 3)
    advice = [entry["action"] for entry in logs if "action" in entry]
    assert len(advice) == 2
    assert "start the learner" in advice[0]
    assert "waits until the learner is back" in advice[1]


def test_a_connect_timeout_names_the_address_and_the_reason() -> None:
    """A connect timeout ends the actor with one line that names the address and the cause."""
    with linked(ScriptedLearner(1)) as link:
        wait_until(lambda: link.reconnects >= 1)
        with pytest.raises(ActorError) as failure:
            link.open(0.1)
    assert failure.value.exit_code is ExitCode.UNREACHABLE
    assert "127.0.0.1:1 did not answer within 0.1 s (Connection refused" in failure.value.message


def test_a_full_learner_is_asked_again_not_before_it_says() -> None:
    """The actor waits at least as long as RetryInfo says before it asks a full learner again."""
    with ScriptedLearner() as learner:
        learner.fail_open = [TooManySessions("500 of 500 sessions", retry_after_seconds=0.5)]
        begin = time.monotonic()
        with linked(learner) as link:
            link.open(20.0)
            assert time.monotonic() - begin >= 0.5
            assert len(learner.opened) == 2


def test_an_opening_refused_for_good_ends_the_actor() -> None:
    """A permanent refusal is reported immediately, with the next step for the user."""
    with ScriptedLearner() as learner:
        learner.fail_open = [SessionFenced("a newer process has it")]
        with linked(learner) as link, pytest.raises(ActorError, match="--name") as failure:
            link.open(20.0)
    assert failure.value.exit_code is ExitCode.SUPERSEDED


def _refuse(learner: ScriptedLearner, times: int) -> None:
    """Refuses the token of the next renewal, and of the next openings."""
    learner.fail_open = [_unauthenticated() for _ in range(times)]
    learner.fail_renew = [_unauthenticated()]


def _unauthenticated() -> WireError:
    return WireError("who?", code=grpc.StatusCode.UNAUTHENTICATED)


def test_a_token_refused_after_a_success_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """While tokens are replaced an accepted actor keeps its session; if its token stays refused, it ends in the end."""
    with ScriptedLearner() as learner:
        learner.report_seconds = 0.05
        with acting(learner) as actor:
            with capture_logs() as logs:
                _refuse(learner, 2)
                wait_until(lambda: not learner.fail_open and actor.port.may_step(1))
            assert any("the actor ends if it is refused for another" in entry.get("reason", "") for entry in logs)
            actor.send(3)
            actor.wait_acked()
            assert actor.link.error is None
            assert len(learner.sessions) == 1
            monkeypatch.setattr(connector, "REFUSED_SECONDS", 0.0)
            _refuse(learner, 100)
            wait_until(lambda: actor.link.error is not None)
            assert actor.link.error is not None
            assert actor.link.error.exit_code is ExitCode.UNAUTHENTICATED


def test_a_refused_declaration_ends_the_actor_and_closes_the_session() -> None:
    """A refused declaration ends the actor with the learner's message, without its metadata, and closes the session."""
    text = "CartPole differs: obs/state: run float32[64], actor float32[48]"
    with ScriptedLearner() as learner:
        learner.fail_declare = [SpecMismatch(text, metadata={"run": "Spec()"})]
        with linked(learner) as link, pytest.raises(ActorError) as failure:
            link.declare(CARTPOLE, 0, 1, 20.0)
        assert (failure.value.exit_code, failure.value.message) == (ExitCode.SPEC_MISMATCH, text)
        closed = learner.session.closed
        assert closed is not None
        assert closed.reason == session_pb2.CLOSE_REASON_ERROR


def test_a_mismatch_after_a_restart_ends_the_actor() -> None:
    """The actor repeats its declarations after a restart, and a learner with another spec refuses it."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.fail_declare = [SpecMismatch("another run")]
        learner.restart(forget=True)
        wait_until(lambda: actor.link.error is not None)
        assert actor.link.stopping


def test_a_declaration_outlives_a_break() -> None:
    """A declaration is repeated if the connection breaks before the answer."""
    with ScriptedLearner() as learner:
        learner.fail_declare = [WireError("gone", code=grpc.StatusCode.UNAVAILABLE)]
        with linked(learner) as link:
            assert link.declare(CARTPOLE, 0, 1, 20.0).time_horizon == 64
            assert learner.session.epoch == 2


def test_a_final_drain_stops_the_actor_and_closes_the_session() -> None:
    """After a final drain the actor sends its remaining chunks, closes with its final books and ends without error."""
    with ScriptedLearner() as learner:
        with acting(learner) as actor:
            learner.drain(final=True)
            wait_until(lambda: actor.link.stopping)
            assert not actor.port.may_step(1)
            actor.send(3)
            actor.link.close(message="the run is over")
            assert actor.link.error is None
        closed = learner.session.closed
        assert closed is not None
        assert (closed.reason, closed.message) == (session_pb2.CLOSE_REASON_DONE, "the run is over")
        assert (
            closed.books[0].produced_steps,
            closed.books[0].acked_steps,
            closed.books[0].unacked_steps,
        ) == (3, 3, 0)


def test_a_learner_that_ends_after_its_final_drain_is_not_awaited() -> None:
    """The actor does not reconnect after a final drain."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.drain(final=True)
        wait_until(lambda: actor.link.stopping)
        learner.hang_up()
        learner.listen()
        actor.link.close()
        assert (len(learner.opened), actor.link.error) == (1, None)


def test_a_drain_that_is_not_final_brings_the_actor_back() -> None:
    """On a drain that is not final the actor pauses for the requested time and resumes the same session."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        begin = time.monotonic()
        learner.drain(final=False, retry_after_ms=400)
        wait_until(lambda: not actor.port.may_step(1))
        wait_until(lambda: learner.session.epoch == 2)
        assert time.monotonic() - begin >= 0.4
        wait_until(lambda: actor.port.may_step(1))
        assert not actor.link.stopping


def test_a_fence_that_was_our_own_is_settled_by_opening_again() -> None:
    """An actor that fences its own earlier session resumes it by opening again."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.session.epoch += 1  # as after an opening whose answer was lost
        learner.tell(StreamSuperseded("a newer stream"))
        wait_until(lambda: learner.session.epoch == 3)
        actor.send(2)
        actor.wait_acked()


def test_an_actor_that_is_fenced_again_and_again_gives_up() -> None:
    """An actor that is fenced repeatedly by another process ends."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.fail_upload = [SessionFenced("another process")] * 3
        learner.tell(WireError("cut", code=grpc.StatusCode.UNAVAILABLE))
        wait_until(lambda: actor.link.error is not None)
        assert actor.link.error is not None
        assert actor.link.error.exit_code is ExitCode.SUPERSEDED


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED])
def test_a_fault_of_the_learner_is_survived(code: grpc.StatusCode) -> None:
    """The actor reconnects after an internal error of the learner."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.tell(WireError("a bug", code=code))
        wait_until(lambda: learner.session.epoch == 2)
        actor.send(2)
        actor.wait_acked()


def test_nonsense_from_the_learner_is_tried_again_without_harm() -> None:
    """An ack of a chunk that was never sent breaks the connection and leaves the books unchanged."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        actor.send(2)
        actor.wait_acked()
        learner.session.acked_through = 99
        learner.ack()
        learner.session.acked_through = 1
        wait_until(lambda: learner.session.epoch == 2)
        actor.send(2)
        actor.wait_acked()
        assert actor.port.books.view().acked == 4
