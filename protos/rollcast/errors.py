"""Errors on the wire: one class per reason, the same class on both sides.

    WireError
    |- MalformedChunk  BadSpec  BadRequest  SettingRefused          INVALID_ARGUMENT: a fault of the sender
    |- SpecMismatch  UnknownBehavior  StepTooLarge                  FAILED_PRECONDITION: configuration
    |- RingTooSmall  Untrainable                                    FAILED_PRECONDITION: configuration
    |- CreditExceeded                                               FAILED_PRECONDITION: a fault of the sender
    |- ProtocolTooOld  NothingToSave                                FAILED_PRECONDITION
    |- SessionFenced  StreamSuperseded                              FAILED_PRECONDITION: another process or stream
    |- SessionExpired  VersionEvicted  NotQuarantined               NOT_FOUND
    |- SequenceGap                                                  OUT_OF_RANGE
    |- Unauthenticated                                              UNAUTHENTICATED: no valid token or certificate
    |- NotAllowed                                                   PERMISSION_DENIED: another role, or another's session
    |- TooManySessions  TooManyCalls  Quarantined                   RESOURCE_EXHAUSTED: wait as requested
    |- TooSlow                                                      ABORTED: the receiver takes too long
    |- Draining                                                     UNAVAILABLE: now; wait as requested
    |- CheckpointFailed  Unexpected                                 INTERNAL
    `- PolicyCorrupt                                                DATA_LOSS: made by a receiver, never sent

A status carries `google.rpc.ErrorInfo` (reason, domain, metadata) and, if waiting helps, `google.rpc.RetryInfo`
(AIP-193).
"""
# ruff: noqa: N818 - the classes carry the protocol's reasons as names

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

DOMAIN: Final = "rollcast"
DETAILS_KEY: Final = "grpc-status-details-bin"
# A status travels in HTTP/2 trailers, which peers refuse above 8 KiB. The message occurs twice: percent-encoded (up to
# three bytes each) and inside the details, which are base64 (4/3). 3 x 1000 + 4/3 x (1000 + 2000) = 7000 bytes.
MAX_MESSAGE_BYTES: Final = 1000
MAX_METADATA_BYTES: Final = 2000
MAX_RETRY_AFTER_SECONDS: Final = 3600.0


class WireError(Exception):
    """An error with a gRPC code and a machine-readable reason.

    Attributes:
        code: The gRPC status code.
        reason: UPPER_SNAKE word; empty if the peer gave none, because the status did not come from Rollcast's code.
        message: Text: the value, the limit and the next step.
        retry_after_seconds: Least wait before a retry; None if waiting does not help.
        metadata: Every value of the message, by name.
    """

    default_code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN
    default_reason: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Makes the class's name the reason: MALFORMED_CHUNK of MalformedChunk."""
        cls.default_reason = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
        code: grpc.StatusCode | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.metadata: dict[str, str] = dict(metadata or {})
        self.code: grpc.StatusCode = self.default_code if code is None else code
        self.reason: str = self.default_reason if reason is None else reason


class MalformedChunk(WireError):
    """A chunk breaks the form in trajectory.proto; the sender has a bug."""

    default_code = grpc.StatusCode.INVALID_ARGUMENT


class BadSpec(WireError):
    """A behavior spec contradicts itself or spec.proto."""

    default_code = grpc.StatusCode.INVALID_ARGUMENT


class BadRequest(WireError):
    """A message is incomplete, out of bounds or out of order."""

    default_code = grpc.StatusCode.INVALID_ARGUMENT


class SpecMismatch(WireError):
    """An actor's spec differs from the one that defines the run; both are in the metadata."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class UnknownBehavior(WireError):
    """The behavior is not in the run file (FAILED_PRECONDITION), or was not declared (pass NOT_FOUND as the code)."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class StepTooLarge(WireError):
    """A single step does not fit the largest chunk."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class RingTooSmall(WireError):
    """The learner's ring is too small for the settings of the run file."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class Untrainable(WireError):
    """The declared behavior cannot be trained with this run file on this machine."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class CreditExceeded(WireError):
    """More steps were sent than the credit allows; the sender has a bug."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class SessionExpired(WireError):
    """The learner does not know the session, or no longer knows it."""

    default_code = grpc.StatusCode.NOT_FOUND


class SessionFenced(WireError):
    """A newer epoch of the session exists: another process has taken it over."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class StreamSuperseded(WireError):
    """A newer stream of the same session and kind replaced this one."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class SequenceGap(WireError):
    """A chunk arrived whose predecessors are missing: open the stream again and resend."""

    default_code = grpc.StatusCode.OUT_OF_RANGE


class TooManySessions(WireError):
    """The learner admits no more actors at present."""

    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class TooManyAgents(WireError):
    """The agents that other actors claim leave no room for a declaration at present."""

    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class TooManyCalls(WireError):
    """A session has too many calls of one kind open, or too many uploads have not begun."""

    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Quarantined(WireError):
    """The learner shuts out an actor that broke the form of the protocol too often."""

    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class TooSlow(WireError):
    """A message was not sent or not taken in time."""

    default_code = grpc.StatusCode.ABORTED


class Draining(WireError):
    """The learner is about to stop."""

    default_code = grpc.StatusCode.UNAVAILABLE


class VersionEvicted(WireError):
    """The learner no longer holds the policy version, or does not hold it yet."""

    default_code = grpc.StatusCode.NOT_FOUND


class ProtocolTooOld(WireError):
    """The actor's protocol revision is older than the oldest that the learner supports."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class Unauthenticated(WireError):
    """The caller has no valid token or certificate."""

    default_code = grpc.StatusCode.UNAUTHENTICATED


class NotAllowed(WireError):
    """The caller is known and may not do this: another role is needed, or the session belongs to another principal."""

    default_code = grpc.StatusCode.PERMISSION_DENIED


class NotQuarantined(WireError):
    """An operator names an actor that is not shut out."""

    default_code = grpc.StatusCode.NOT_FOUND


class NothingToSave(WireError):
    """A checkpoint was requested before any behavior was declared."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class CheckpointFailed(WireError):
    """A checkpoint could not be written."""

    default_code = grpc.StatusCode.INTERNAL


class SettingRefused(WireError):
    """An operator sets what is unknown, cannot change while the run trains, or cannot have this value."""

    default_code = grpc.StatusCode.INVALID_ARGUMENT


class Unexpected(WireError):
    """A bug of the peer, whose log has the traceback under the incident id."""

    default_code = grpc.StatusCode.INTERNAL

    @classmethod
    def with_incident(cls, incident: str) -> "Unexpected":
        """Builds the error that hides everything but an id."""
        return cls(
            f"the learner failed to answer; search its log for incident {incident}", metadata={"incident": incident}
        )


class PolicyCorrupt(WireError):
    """A received policy is incomplete, too large, or does not match its header. Raised locally, never sent."""

    default_code = grpc.StatusCode.DATA_LOSS


BY_REASON: Final[Mapping[str, type[WireError]]] = MappingProxyType(
    {kind.default_reason: kind for kind in WireError.__subclasses__()}
)


def to_status(error: WireError) -> grpc.Status:
    """Builds the status for `context.abort_with_status`; long texts are cut so that the trailers stay within 8 KiB."""
    message = _cut(error.message, MAX_MESSAGE_BYTES)
    status = status_pb2.Status(code=error.code.value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    room = MAX_METADATA_BYTES
    for key, value in error.metadata.items():
        kept = _cut(value, room - len(key.encode()))
        if not kept:
            continue
        info.metadata[key] = kept
        room -= len(key.encode()) + len(kept.encode())
    status.details.add().Pack(info, deterministic=True)
    if error.retry_after_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(max(0, round(error.retry_after_seconds * 1000)))
        status.details.add().Pack(retry)
    return cast("grpc.Status", rpc_status.to_status(status))  # type: ignore[no-untyped-call]


def from_rpc_error(error: grpc.RpcError) -> WireError:
    """Converts an error of a call (sync or aio) to the class that its reason names.

    A status without Rollcast's details (from gRPC itself, a proxy, or a newer peer) becomes a plain `WireError` with
    the code and the text. RESOURCE_EXHAUSTED with an empty reason is an oversized message: a bug to report, not load.
    """
    code = error.code() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
    text = error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else str(error)
    trailers = error.trailing_metadata() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    info, retry_after_seconds = _details(cast("Iterable[tuple[str, str | bytes]]", trailers or ()))
    message = text or f"the call failed with {code.name} and no text"
    if info is None:
        return WireError(message, code=code, retry_after_seconds=retry_after_seconds)
    kind = BY_REASON.get(info.reason, WireError)
    return kind(
        message, retry_after_seconds=retry_after_seconds, metadata=dict(info.metadata), code=code, reason=info.reason
    )


def _details(
    trailers: Iterable[tuple[str, str | bytes]],
) -> tuple[error_details_pb2.ErrorInfo | None, float | None]:
    """Returns the ErrorInfo and the RetryInfo in trailing metadata; unreadable ones count as absent."""
    info: error_details_pb2.ErrorInfo | None = None
    retry_after_seconds: float | None = None
    for key, value in trailers:
        if key != DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                found = error_details_pb2.ErrorInfo()
                retry = error_details_pb2.RetryInfo()
                if detail.Unpack(found) and found.domain == DOMAIN:
                    info = found
                elif detail.Unpack(retry):
                    seconds = retry.retry_delay.seconds + retry.retry_delay.nanos * 1e-9
                    retry_after_seconds = min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS)
        except DecodeError:
            continue
    return info, retry_after_seconds if retry_after_seconds is None or math.isfinite(retry_after_seconds) else None


def _cut(text: str, limit_bytes: int) -> str:
    """Shortens `text` to `limit_bytes` of UTF-8, whole characters only."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit_bytes:
        return encoded.decode("utf-8")
    if limit_bytes < 4:
        return ""
    return encoded[: limit_bytes - 3].decode("utf-8", "ignore") + "..."
