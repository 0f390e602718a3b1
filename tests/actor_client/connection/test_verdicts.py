"""Which errors end the actor."""

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

from actor_client.connection.verdicts import describe, describe_shortly, fatal, least_wait_seconds, one_line
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
        (Untrainable("x"), ExitCode.REFUSED),
        (CreditExceeded("x"), ExitCode.MALFORMED),
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


def test_a_mismatch_is_told_in_the_learners_words_alone() -> None:
    """The text has both sides and the next step; the metadata, whole specs, would bury it."""
    text = "CartPole differs: obs/state: run float32[64], actor float32[48]. Train the new one as another run"
    failure = fatal(SpecMismatch(text, metadata={"run": "BehaviorSpec(...)", "actor": "x"}), opening=False)
    assert failure is not None
    assert failure.message == text


def test_a_command_may_give_advice_of_its_own() -> None:
    """A next step that its users can take stands in the place of the usual one; other ends keep theirs."""
    advice = {"UNKNOWN_BEHAVIOR": "rename it"}
    failure = fatal(UnknownBehavior("no behavior 'x'"), opening=False, advice=advice)
    assert failure is not None
    assert failure.message == "no behavior 'x'; rename it"
    other = fatal(BadSpec("x"), opening=False, advice=advice)
    assert other is not None
    assert "rename it" not in other.message


def test_the_control_address_is_guessed() -> None:
    """What a server without the actors' services answers leads to the address."""
    failure = fatal(WireError("Method not found!", code=grpc.StatusCode.UNIMPLEMENTED), opening=True)
    assert failure is not None
    assert "maybe its control address; check --learner" in failure.message


def test_a_refused_connection_is_told_shortly() -> None:
    """The last cause stays; a text without one, and one of the learner's own, stay whole."""
    unavailable = grpc.StatusCode.UNAVAILABLE
    long = (
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: "
    )
    for cause in ("Connection refused", "connect: Connection refused (111)"):
        assert describe_shortly(WireError(long + cause, code=unavailable)) == "Connection refused"
    assert describe_shortly(WireError("x (111)", code=unavailable)) == "UNAVAILABLE: x (111)"


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
