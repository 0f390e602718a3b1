"""Classifies errors: those that end the actor, with their exit codes, and those after which the actor reconnects.

An error ends the actor if the same attempt would fail again: the configuration is wrong, or one side has a bug.
Temporary faults (a learner that restarts, is full, or cannot be reached) never end the actor.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import grpc
from rollcast.errors import WireError
from rollcast.text import printable
from rollcast.v1 import trajectory_pb2

from actor_client.connection.backoff import Clock
from actor_client.connection.window import OutgoingChunk
from actor_client.exits import ActorError, ExitCode

# Faults of the data itself. A chunk that arrives too late, or after the last update, has no such fault.
DATA_FAULTS = frozenset({"not_finite", "bad_action", "bad_observation"})
# Limits on consecutive refused chunks and their duration: a temporary fault does not end the actor.
MIN_CHUNKS = 20
MIN_SECONDS = 3.0
# Seconds before a retry after a bug of the learner.
SLOW_RETRY_SECONDS = 1.0

# The end of gRPC's text about a failed connection: the system's message, and perhaps its number.
_LAST_CAUSE = re.compile(
    r".*failed to connect to remote host: (?:connect: )?(.+?)(?: \(\d+\))?\s*$", re.IGNORECASE | re.DOTALL
)

# The exit code and the next step for each reason; the next step is empty where the learner's text has one.
_FATAL: Mapping[str, tuple[ExitCode, str]] = MappingProxyType(
    {
        "MALFORMED_CHUNK": (ExitCode.MALFORMED, "report this bug: the actor made a chunk that violates the protocol"),
        "BAD_REQUEST": (ExitCode.MALFORMED, "report this bug: the actor sent a message that violates the protocol"),
        "BAD_SPEC": (ExitCode.REFUSED, "correct the spaces of the environment"),
        "SPEC_MISMATCH": (ExitCode.SPEC_MISMATCH, ""),
        "PROTOCOL_TOO_OLD": (ExitCode.PROTOCOL_TOO_OLD, "update the actor to the learner's release"),
        "UNKNOWN_BEHAVIOR": (
            ExitCode.UNKNOWN_BEHAVIOR,
            "or act for one of its behaviors",
        ),
        "STEP_TOO_LARGE": (ExitCode.REFUSED, ""),
        "RING_TOO_SMALL": (ExitCode.REFUSED, ""),
        "UNTRAINABLE": (ExitCode.REFUSED, ""),
        "CREDIT_EXCEEDED": (ExitCode.MALFORMED, "report this bug: the actor took steps without credit"),
    }
)

_FATAL_CODES: Mapping[grpc.StatusCode, tuple[ExitCode, str]] = MappingProxyType(
    {
        grpc.StatusCode.UNAUTHENTICATED: (ExitCode.UNAUTHENTICATED, "check the actor's token"),
        grpc.StatusCode.PERMISSION_DENIED: (ExitCode.NOT_ALLOWED, "check what the actor's token allows"),
        grpc.StatusCode.UNIMPLEMENTED: (
            ExitCode.NOT_A_LEARNER,
            "perhaps another service answers there: give the address in the learner's line learner_started as --learner",
        ),
        # gRPC itself refuses a message over the size limit with this code, without a reason.
        grpc.StatusCode.RESOURCE_EXHAUSTED: (ExitCode.MALFORMED, "report this bug: a message exceeds the size limit"),
    }
)


def fatal(error: WireError, *, opening: bool, advice: Mapping[str, str] = MappingProxyType({})) -> ActorError | None:
    """Returns the error that ends the actor, or None if the actor should reconnect.

    Args:
        error: The error of a call or a stream.
        opening: Whether OpenSession failed. If it is fenced, a newer process has the session. If another call is
            fenced, an answer to an earlier attempt of this actor may have been lost, and opening again resolves it.
        advice: The command's own next steps for errors, by the learner's reason.
    """
    if error.reason == "SESSION_FENCED":
        return superseded(error) if opening else None
    if error.reason:
        found = _FATAL.get(error.reason)
        if error.reason == "UNKNOWN_BEHAVIOR" and error.code is grpc.StatusCode.NOT_FOUND:
            return None  # the behavior is in the run file but not declared: the next opening declares it
        if found is None and error.code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
            found = _FATAL_CODES[error.code]
    else:
        found = _FATAL_CODES.get(error.code)
    if found is None:
        return None
    exit_code, next_step = found
    next_step = advice.get(error.reason or "", next_step)
    text = one_line(error.message)
    return ActorError(exit_code, f"{text}; {next_step}" if next_step else text)


def superseded(error: WireError) -> ActorError:
    """Returns the error for an actor whose session another process has taken over."""
    return ActorError(
        ExitCode.SUPERSEDED,
        f"{one_line(error.message)}: another process took over this session; give each actor its own --name",
    )


def least_wait_seconds(error: WireError) -> float | None:
    """Returns the least wait: the learner's request, or a moment after a bug of the learner."""
    if error.retry_after_seconds is not None:
        return error.retry_after_seconds
    slow = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}
    return SLOW_RETRY_SECONDS if error.code in slow else None


def describe(error: WireError) -> str:
    """Returns the reason or code, and the text, as one line for logs."""
    return f"{error.reason or error.code.name}: {one_line(error.message)}"


def describe_shortly(error: WireError) -> str:
    """Describes an error like `describe`, but a failed connection only by its last cause (`Connection refused`)."""
    found = _LAST_CAUSE.search(error.message) if error.code is grpc.StatusCode.UNAVAILABLE else None
    return one_line(found[1]) if found is not None and not error.reason else describe(error)


def one_line(text: str, limit: int = 500) -> str:
    """Returns an external text as one printable line."""
    return printable(" ".join(text.split()), limit)


class DataRefusals:
    """Counts consecutive settled chunks that were refused completely for faults of their data.

    Args:
        clock: Measures the duration of the refusals.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._chunks = 0
        self._since = 0.0

    def settled(
        self, outgoing_chunks: Iterable[OutgoingChunk], rejections: Sequence[trajectory_pb2.Rejection]
    ) -> ActorError | None:
        """Processes one ack.

        Args:
            outgoing_chunks: The settled chunks.
            rejections: Their refused rows.

        Returns:
            The error that ends the actor; None if it may continue.
        """
        failure: ActorError | None = None
        by_sequence = {rejection.sequence: rejection for rejection in rejections}
        for outgoing in outgoing_chunks:
            rejection = by_sequence.get(outgoing.sequence)
            if not outgoing.rows or (rejection is not None and rejection.reason not in DATA_FAULTS):
                continue
            if rejection is None or rejection.steps < outgoing.rows:
                self._chunks = 0
                continue
            if not self._chunks:
                self._since = self._clock()
            self._chunks += 1
            if self._chunks >= MIN_CHUNKS and self._clock() - self._since >= MIN_SECONDS:
                failure = self._failure(rejection)
        return failure

    def _failure(self, rejection: trajectory_pb2.Rejection) -> ActorError:
        detail = f" ({one_line(rejection.detail)})" if rejection.detail else ""
        return ActorError(
            ExitCode.DATA_REFUSED,
            f"the learner refused all steps of the last {self._chunks} chunks, for {rejection.reason}{detail}; "
            "check what the environment returns",
        )
