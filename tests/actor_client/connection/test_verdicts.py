"""Which errors end the actor."""

from __future__ import annotations

import grpc
import pytest
from rollcast.errors import (
    BY_REASON,
    BadSpec,
    RingTooSmall,
    SequenceGap,
    SessionExpired,
    SpecMismatch,
    StepTooLarge,
    UnknownBehavior,
    VersionEvicted,
    WireError,
)

from actor_client.connection.verdicts import describe, fatal, least_wait_seconds, one_line
from actor_client.exits import ExitCode

SURVIVED = {
    "SESSION_EXPIRED", "SEQUENCE_GAP", "TOO_MANY_SESSIONS", "DRAINING", "STREAM_SUPERSEDED", "VERSION_EVICTED",
    "CHECKPOINT_FAILED", "UNEXPECTED", "POLICY_CORRUPT", "NOTHING_TO_SAVE", "SESSION_FENCED",
}  # fmt: skip


@pytest.mark.parametrize("reason", sorted(BY_REASON))
def test_each_reason_is_settled(reason: str) -> None:
    """Every reason of the protocol either ends the actor or is tried again; none is forgotten."""
    assert (fatal(BY_REASON[reason]("text"), opening=False) is None) is (reason in SURVIVED)


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_each_code_without_a_reason_is_settled(code: grpc.StatusCode) -> None:
    """What gRPC or a proxy says by itself ends the actor only where a retry would meet the same."""
    ends = {
        grpc.StatusCode.UNAUTHENTICATED: ExitCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED: ExitCode.NOT_ALLOWED,
        grpc.StatusCode.UNIMPLEMENTED: ExitCode.NOT_A_LEARNER,
        grpc.StatusCode.RESOURCE_EXHAUSTED: ExitCode.MALFORMED,
    }
    failure = fatal(WireError("text", code=code), opening=True)
    assert (failure.exit_code if failure else None) == ends.get(code)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (BadSpec("x"), ExitCode.REFUSED),
        (StepTooLarge("x"), ExitCode.REFUSED),
        (RingTooSmall("x"), ExitCode.REFUSED),
        (SpecMismatch("x"), ExitCode.SPEC_MISMATCH),
        (UnknownBehavior("x"), ExitCode.UNKNOWN_BEHAVIOR),
    ],
)
def test_each_end_has_its_code(error: WireError, exit_code: ExitCode) -> None:
    """Scripts can tell the ends apart."""
    failure = fatal(error, opening=False)
    assert failure is not None
    assert failure.exit_code is exit_code


def test_a_behavior_that_is_not_declared_yet_is_declared_by_opening_again() -> None:
    """The same reason under NOT_FOUND means that nobody declared the behavior."""
    assert fatal(UnknownBehavior("x", code=grpc.StatusCode.NOT_FOUND), opening=False) is None


def test_a_token_refused_with_a_reason_ends_the_actor() -> None:
    """A reason of a later revision does not hide what the code says."""
    error = WireError("x", code=grpc.StatusCode.UNAUTHENTICATED, reason="TOKEN_INVALID")
    assert fatal(error, opening=False) is not None


def test_messages_show_both_sides_once() -> None:
    """Values of the metadata that the text lacks are added; those it has are not repeated."""
    error = SpecMismatch(
        "CartPole differs: obs/state: run float32[64]", metadata={"run": "float32[64]", "actor": "float32[48]"}
    )
    failure = fatal(error, opening=False)
    assert failure is not None
    assert failure.message.count("float32[64]") == 1
    assert "actor: float32[48]" in failure.message


def test_waits_follow_the_learner_and_its_faults() -> None:
    """RetryInfo counts; a bug of the learner is not hammered; a break is retried at once."""
    assert least_wait_seconds(WireError("x", retry_after_seconds=7.0)) == 7.0
    assert least_wait_seconds(WireError("x", code=grpc.StatusCode.INTERNAL)) == 1.0
    assert least_wait_seconds(SessionExpired("x")) is None
    assert least_wait_seconds(SequenceGap("x")) is None
    assert least_wait_seconds(VersionEvicted("x")) is None


def test_texts_from_outside_become_one_printable_line() -> None:
    """Neither line breaks nor escape sequences reach a terminal."""
    assert one_line("a\nb\t\x1b[31mc") == "a b ?[31mc"
    assert len(one_line("x" * 10_000)) == 500
    assert describe(SessionExpired("gone\nnow")) == "SESSION_EXPIRED: gone now"
    assert describe(WireError("x", code=grpc.StatusCode.UNAVAILABLE)) == "UNAVAILABLE: x"
