"""Classifies errors: those that end the actor, with their exit code, and those after which it reconnects.

An error ends the actor if the same attempt would fail again: the configuration is wrong, or one side has a bug. What
time can heal (a learner that restarts, is full, or cannot be reached) never does.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import grpc
from rollcast.errors import WireError
from rollcast.v1 import trajectory_pb2

from actor_client.connection.backoff import Clock
from actor_client.connection.window import Parcel
from actor_client.exits import ActorError, ExitCode

# Faults of the data itself; a chunk that came too late, or after the last update, is not one.
DATA_FAULTS = frozenset({"not_finite", "bad_action", "bad_observation"})
# So many chunks in a row, over so long at least: a fault that passes by itself does not end the actor.
MIN_CHUNKS = 20
MIN_SECONDS = 3.0
# A bug of the learner is tried again, but not in haste.
SLOW_RETRY_SECONDS = 1.0

# How gRPC ends its text about a connection that could not be made: the system's words, and perhaps their number.
_LAST_CAUSE = re.compile(
    r".*failed to connect to remote host: (?:connect: )?(.+?)(?: \(\d+\))?\s*$", re.IGNORECASE | re.DOTALL
)

# With the next step, unless the learner's text says it.
_FATAL: Mapping[str, tuple[ExitCode, str]] = MappingProxyType(
    {
        "MALFORMED_CHUNK": (ExitCode.MALFORMED, "report it: the actor made a chunk that breaks the protocol"),
        "BAD_REQUEST": (ExitCode.MALFORMED, "report it: the actor sent a message that breaks the protocol"),
        "BAD_SPEC": (ExitCode.REFUSED, "correct the spaces of the environment"),
        "SPEC_MISMATCH": (ExitCode.SPEC_MISMATCH, ""),
        "PROTOCOL_TOO_OLD": (ExitCode.PROTOCOL_TOO_OLD, "update the actor to the learner's release"),
        "UNKNOWN_BEHAVIOR": (ExitCode.UNKNOWN_BEHAVIOR, "choose a behavior of the run file with --behavior"),
        "STEP_TOO_LARGE": (ExitCode.REFUSED, ""),
        "RING_TOO_SMALL": (ExitCode.REFUSED, ""),
        "UNTRAINABLE": (ExitCode.REFUSED, ""),
        "CREDIT_EXCEEDED": (ExitCode.MALFORMED, "report it: the actor took steps that it had no credit for"),
    }
)

_FATAL_CODES: Mapping[grpc.StatusCode, tuple[ExitCode, str]] = MappingProxyType(
    {
        grpc.StatusCode.UNAUTHENTICATED: (ExitCode.UNAUTHENTICATED, "check the actor's token"),
        grpc.StatusCode.PERMISSION_DENIED: (ExitCode.NOT_ALLOWED, "check what the actor's token allows"),
        grpc.StatusCode.UNIMPLEMENTED: (
            ExitCode.NOT_A_LEARNER,
            "this is not the address where a learner takes actors, maybe its control address; check --learner",
        ),
        # gRPC itself refuses a message over the size limit in this way, without a reason.
        grpc.StatusCode.RESOURCE_EXHAUSTED: (ExitCode.MALFORMED, "report it: a message is over the size limit"),
    }
)


def fatal(error: WireError, *, opening: bool, advice: Mapping[str, str] = MappingProxyType({})) -> ActorError | None:
    """Returns the error that ends the actor, or None if the connection is to be tried again.

    Args:
        error: What a call or a stream ended with.
        opening: It was OpenSession that failed. Fenced there means that a newer process has the session; elsewhere an
            answer to an earlier attempt of our own may have been lost, which opening again settles.
        advice: Next steps by reason that a command gives instead of the usual ones.
    """
    if error.reason == "SESSION_FENCED":
        return superseded(error) if opening else None
    if error.reason:
        found = _FATAL.get(error.reason)
        if error.reason == "UNKNOWN_BEHAVIOR" and error.code is grpc.StatusCode.NOT_FOUND:
            return None  # known to the run file but not declared: the next opening declares it
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
    """Returns the end of an actor whose session another process has."""
    return ActorError(
        ExitCode.SUPERSEDED,
        f"{one_line(error.message)}; another process took over this session, give each actor its own --name",
    )


def least_wait_seconds(error: WireError) -> float | None:
    """Returns how long to wait at least: what the learner asks for, or a moment after a bug of the learner."""
    if error.retry_after_seconds is not None:
        return error.retry_after_seconds
    slow = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}
    return SLOW_RETRY_SECONDS if error.code in slow else None


def describe(error: WireError) -> str:
    """Returns one line for logs: the reason or code, and the text."""
    return f"{error.reason or error.code.name}: {one_line(error.message)}"


def describe_shortly(error: WireError) -> str:
    """Returns the same; of a failed connection only the last cause (`Connection refused`), not gRPC's way to it."""
    found = _LAST_CAUSE.search(error.message) if error.code is grpc.StatusCode.UNAVAILABLE else None
    return one_line(found[1]) if found is not None and not error.reason else describe(error)


def one_line(text: str, limit: int = 500) -> str:
    """Returns a text from outside as one line that a terminal can show."""
    flat = " ".join(text.split())
    return "".join(character if character.isprintable() else "?" for character in flat)[:limit]


class DataRefusals:
    """Counts the settled chunks, in a row, that were refused whole for faults of their data.

    Args:
        clock: Tells how long the row lasts.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._chunks = 0
        self._since = 0.0

    def settled(self, parcels: Iterable[Parcel], rejections: Sequence[trajectory_pb2.Rejection]) -> ActorError | None:
        """Takes over one ack.

        Args:
            parcels: The chunks that it settled.
            rejections: The rows of them that were refused.

        Returns:
            The error that ends the actor; None if there is no reason to.
        """
        failure: ActorError | None = None
        by_sequence = {rejection.sequence: rejection for rejection in rejections}
        for parcel in parcels:
            rejection = by_sequence.get(parcel.sequence)
            if not parcel.rows or (rejection is not None and rejection.reason not in DATA_FAULTS):
                continue
            if rejection is None or rejection.steps < parcel.rows:
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
            f"the learner refused the last {self._chunks} chunks whole, for {rejection.reason}{detail}; "
            "check what the environment returns",
        )
