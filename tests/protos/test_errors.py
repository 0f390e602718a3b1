"""Tests that errors are equal on both sides of gRPC."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from rollcast import errors
from rollcast.errors import BY_REASON, SpecMismatch, WireError


def received_as(status: Any) -> WireError:
    """Returns the error of a caller whose call ended with a status."""
    trailers = grpc.aio.Metadata(*(status.trailing_metadata or ()))
    return errors.from_rpc_error(grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailers, status.details))


def test_an_error_comes_back_as_the_same_class() -> None:
    """Class, code, reason, message, metadata and delay are equal."""
    sent = SpecMismatch(
        "obs/state: run float32[64], actor float32[48]; läuft",
        retry_after_seconds=1.5,
        metadata={"run": "float32[64]", "actor": "float32[48]"},
    )
    received = received_as(errors.to_status(sent))
    assert type(received) is SpecMismatch
    assert str(received) == received.message == sent.message
    assert (received.code, received.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SPEC_MISMATCH")
    assert received.metadata == sent.metadata
    assert received.retry_after_seconds == 1.5


@pytest.mark.parametrize(("reason", "kind"), sorted(BY_REASON.items()))
def test_every_reason_comes_back(reason: str, kind: type[WireError]) -> None:
    """Every reason is sent and received."""
    received = received_as(errors.to_status(kind("told")))
    assert (type(received), received.code, received.reason) == (kind, kind.default_code, reason)
    assert received.retry_after_seconds is None


def test_details_that_cannot_be_read_count_as_absent() -> None:
    """Invalid trailers are ignored, and a bare error is UNKNOWN."""
    trailers = grpc.aio.Metadata((errors.DETAILS_KEY, b"\xff\xff\xff"))
    code = grpc.StatusCode.INTERNAL
    received = errors.from_rpc_error(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, "odd"))
    assert type(received) is WireError
    assert (received.code, received.message) == (code, "odd")
    bare = errors.from_rpc_error(grpc.RpcError())
    assert (bare.code, bare.reason) == (grpc.StatusCode.UNKNOWN, "")


def test_long_texts_are_cut_to_what_trailers_carry() -> None:
    """Texts are cut so that trailers stay below 8 KiB and keep the reason."""
    received = received_as(
        errors.to_status(SpecMismatch("ß" * 50_000, metadata={f"k{n}": "ü" * 500 for n in range(100)}))
    )
    assert type(received) is SpecMismatch
    assert received.message.endswith("...")
    assert 450 < len(received.message) < 1001
    assert len(received.metadata) >= 1


def test_a_new_reason_of_a_newer_peer_keeps_its_name() -> None:
    """An unknown reason has the general class, with code, reason and text."""
    received = received_as(errors.to_status(WireError("novel", code=grpc.StatusCode.ABORTED, reason="NEVER_HEARD_OF")))
    assert type(received) is WireError
    assert (received.code, received.reason, received.message) == (grpc.StatusCode.ABORTED, "NEVER_HEARD_OF", "novel")


def foreign(code: int, *details: Any) -> grpc.Status:
    """Returns a status made by other software."""
    status = status_pb2.Status(code=code, message="foreign")
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    result: grpc.Status = rpc_status.to_status(status)  # type: ignore[no-untyped-call]
    return result


def test_details_of_another_domain_are_not_ours() -> None:
    """A reason of another domain is ignored, and its RetryInfo counts."""
    info = error_details_pb2.ErrorInfo(reason="DRAINING", domain="example.com")
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromSeconds(2)
    received = received_as(foreign(code_pb2.UNAVAILABLE, info, retry))
    assert type(received) is WireError
    assert (received.code, received.reason) == (grpc.StatusCode.UNAVAILABLE, "")
    assert received.retry_after_seconds == 2.0


@pytest.mark.parametrize(("seconds", "expected"), [(-5, 0.0), (10**9, 3600.0)])
def test_senseless_retry_delays_are_bounded(seconds: int, expected: float) -> None:
    """Impossible retry delays are limited."""
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.seconds = seconds
    assert expected == received_as(foreign(code_pb2.UNAVAILABLE, retry)).retry_after_seconds
