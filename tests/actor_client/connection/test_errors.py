"""Tests the classification of errors: which ones end the actor, and when refused chunks do."""

from __future__ import annotations

import grpc
import pytest
from rollcast.errors import (
    BY_REASON,
    BadSpec,
    CreditExceeded,
    RingTooSmall,
    SequenceGap,
    SessionExpired,
    SpecMismatch,
    StepTooLarge,
    UnknownBehavior,
    Untrainable,
    VersionEvicted,
    WireError,
)
from rollcast.v1 import trajectory_pb2

from actor_client.connection import errors
from actor_client.connection.books import Books
from actor_client.connection.errors import (
    MIN_CHUNKS,
    MIN_SECONDS,
    DataRefusals,
    describe,
    fatal,
    least_wait_seconds,
    one_line,
)
from actor_client.connection.gate import Gate
from actor_client.connection.window import OutgoingChunk
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.connection.harness import acting
from tests.actor_client.scripted import ScriptedLearner, wait_until

SURVIVED = {
    "SESSION_EXPIRED", "SEQUENCE_GAP", "TOO_MANY_SESSIONS", "DRAINING", "STREAM_SUPERSEDED", "VERSION_EVICTED",
    "CHECKPOINT_FAILED", "UNEXPECTED", "POLICY_CORRUPT", "NOTHING_TO_SAVE", "SESSION_FENCED", "TOO_MANY_CALLS",
    "TOO_SLOW", "TOO_MANY_AGENTS", "QUARANTINED", "NOT_QUARANTINED", "SETTING_REFUSED",
}  # fmt: skip


ENDS = {
    **{
        error.reason: ExitCode.REFUSED
        for error in (BadSpec("x"), StepTooLarge("x"), RingTooSmall("x"), Untrainable("x"))
    },
    CreditExceeded("x").reason: ExitCode.MALFORMED,
    SpecMismatch("x").reason: ExitCode.SPEC_MISMATCH,
    UnknownBehavior("x").reason: ExitCode.UNKNOWN_BEHAVIOR,
}


@pytest.mark.parametrize("reason", sorted(BY_REASON))
def test_each_reason_is_settled(reason: str) -> None:
    """Every reason of the protocol either ends the actor, most with a code of their own, or is retried."""
    failure = fatal(BY_REASON[reason]("text"), opening=False)
    assert (failure is None) is (reason in SURVIVED)
    assert failure is None or failure.exit_code is ENDS.get(reason, failure.exit_code)


def test_a_status_code_counts_beside_a_reason() -> None:
    """BEHAVIOR_NOT_DECLARED under NOT_FOUND opens the session again; an unknown reason does not hide a refused token."""
    assert fatal(UnknownBehavior("x", code=grpc.StatusCode.NOT_FOUND), opening=False) is None
    error = WireError("x", code=grpc.StatusCode.UNAUTHENTICATED, reason="TOKEN_INVALID")
    assert fatal(error, opening=False) is not None


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_each_code_without_a_reason_is_settled(code: grpc.StatusCode) -> None:
    """Status codes without a reason end the actor only if a retry would fail again."""
    ends = {
        grpc.StatusCode.UNAUTHENTICATED: ExitCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED: ExitCode.NOT_ALLOWED,
        grpc.StatusCode.UNIMPLEMENTED: ExitCode.NOT_A_LEARNER,
        grpc.StatusCode.RESOURCE_EXHAUSTED: ExitCode.MALFORMED,
    }
    failure = fatal(WireError("text", code=code), opening=True)
    assert (failure.exit_code if failure else None) == ends.get(code)


def test_a_command_may_give_advice_of_its_own() -> None:
    """A command can replace the advice of one error; the advice of others stays."""
    advice = {"UNKNOWN_BEHAVIOR": "rename it"}
    failure = fatal(UnknownBehavior("no behavior 'x'"), opening=False, advice=advice)
    assert failure is not None
    assert failure.message == "no behavior 'x'; rename it"
    other = fatal(BadSpec("x"), opening=False, advice=advice)
    assert other is not None
    assert "rename it" not in other.message


def test_waits_follow_the_learner_and_its_faults() -> None:
    """The wait after an error follows RetryInfo, backs off after internal errors, and is zero after a disconnect."""
    assert least_wait_seconds(WireError("x", retry_after_seconds=7.0)) == 7.0
    assert least_wait_seconds(WireError("x", code=grpc.StatusCode.INTERNAL)) == 1.0
    assert least_wait_seconds(SessionExpired("x")) is None
    assert least_wait_seconds(SequenceGap("x")) is None
    assert least_wait_seconds(VersionEvicted("x")) is None


def test_texts_from_outside_become_one_printable_line() -> None:
    """Texts from the network are stripped of line breaks and escape sequences."""
    assert one_line("a\nb\t\x1b[31mc") == "a b \\x1b[31mc"
    assert len(one_line("x" * 10_000)) == 500
    assert describe(SessionExpired("gone\nnow")) == "SESSION_EXPIRED: gone now"
    assert describe(WireError("x", code=grpc.StatusCode.UNAVAILABLE)) == "UNAVAILABLE: x"


ROWS = 5


class Refusing:
    """Sends acks of refused chunks with a manual clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.refusals = DataRefusals(lambda: self.now)

    def ack(self, chunks: int, reason: str, steps: int = ROWS) -> ActorError | None:
        """Acks this many chunks, each with the given rejection or none."""
        outgoing_chunks = [
            OutgoingChunk(trajectory_pb2.UploadRequest(), Gate(1), Books(), ROWS, 1, sequence=n)
            for n in range(1, chunks + 1)
        ]
        rejections = [
            trajectory_pb2.Rejection(sequence=outgoing.sequence, reason=reason, steps=steps, detail="column reward")
            for outgoing in outgoing_chunks
            if reason
        ]
        return self.refusals.settled(outgoing_chunks, rejections)


def test_data_that_is_refused_whole_for_a_while_ends_the_actor() -> None:
    """Only many rejected chunks over some time end the actor; the message has reason and detail."""
    learner = Refusing()
    assert learner.ack(2 * MIN_CHUNKS, "not_finite") is None
    learner.now = MIN_SECONDS
    failure = learner.ack(1, "not_finite")
    assert failure is not None
    assert failure.exit_code is ExitCode.DATA_REFUSED
    assert "not_finite (column reward)" in failure.message


@pytest.mark.parametrize(("reason", "steps"), [("", 0), ("not_finite", ROWS - 1)])
def test_one_good_chunk_begins_the_count_anew(reason: str, steps: int) -> None:
    """A chunk that is at least partly accepted resets the count of rejected chunks."""
    learner = Refusing()
    learner.ack(MIN_CHUNKS, "bad_observation")
    learner.ack(1, reason, steps)
    learner.now = MIN_SECONDS
    assert learner.ack(MIN_CHUNKS, "bad_observation") is None


@pytest.mark.parametrize("reason", ["stale", "generation", "not_training"])
def test_chunks_that_came_too_late_are_not_counted(reason: str) -> None:
    """Rejections that are not caused by the data never end the actor."""
    learner = Refusing()
    learner.ack(MIN_CHUNKS, reason)
    learner.now = MIN_SECONDS
    assert learner.ack(MIN_CHUNKS, reason) is None


def test_the_actor_is_stopped_and_its_books_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stepping thread is stopped, and the last chunks are still settled."""
    monkeypatch.setattr(errors, "MIN_SECONDS", 0.0)
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.reject = "not_finite"
        for _ in range(MIN_CHUNKS + 1):
            actor.send(1)
        wait_until(lambda: actor.link.stopping)
        actor.wait_acked()
        assert actor.link.error is not None
        assert actor.link.error.exit_code is ExitCode.DATA_REFUSED
        assert actor.port.books.view().acked == MIN_CHUNKS + 1
