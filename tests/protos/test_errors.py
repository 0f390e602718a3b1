"""Tests that errors are equal on both sides of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from rollcast import errors
from rollcast.errors import BY_REASON, SpecMismatch, WireError
from rollcast.v1 import session_pb2, session_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc

from tests.protos.serving import Context, connected, serving

REQUEST = session_pb2.RenewSessionRequest(session_id="s")


def unary(status: grpc.Status) -> WireError:
    """Answers a unary call with the status and returns the caller's error."""

    async def renew(_: session_pb2.RenewSessionRequest, context: Context) -> session_pb2.RenewSessionResponse:
        await context.abort_with_status(status)
        return session_pb2.RenewSessionResponse()

    async def run() -> WireError:
        async with serving(renew=renew) as address, connected(address) as channel:
            stub = session_pb2_grpc.SessionServiceStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                await stub.RenewSession(REQUEST, timeout=20)
            return errors.from_rpc_error(caught.value)

    return asyncio.run(run())


def stream(status: grpc.Status) -> WireError:
    """Ends a stream with the status after one message in each direction."""

    async def upload(
        requests: AsyncIterator[trajectory_pb2.UploadRequest], context: Context
    ) -> AsyncIterator[trajectory_pb2.UploadResponse]:
        async for _ in requests:
            yield trajectory_pb2.UploadResponse()
            await context.abort_with_status(status)

    async def run() -> WireError:
        async with serving(upload=upload) as address, connected(address) as channel:
            call = trajectory_pb2_grpc.TrajectoryServiceStub(channel).Upload(timeout=20)
            await call.write(trajectory_pb2.UploadRequest())
            await call.read()
            with pytest.raises(grpc.RpcError) as caught:
                await call.read()
            return errors.from_rpc_error(caught.value)

    return asyncio.run(run())


@pytest.mark.parametrize("deliver", [unary, stream])
def test_an_error_comes_back_as_the_same_class(deliver: Any) -> None:
    """Class, code, reason, message, metadata and delay are equal for unary calls and streams."""
    sent = SpecMismatch(
        "obs/state: run float32[64], actor float32[48]; läuft",
        retry_after_seconds=1.5,
        metadata={"run": "float32[64]", "actor": "float32[48]"},
    )
    received = deliver(errors.to_status(sent))
    assert type(received) is SpecMismatch
    assert str(received) == received.message == sent.message
    assert (received.code, received.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SPEC_MISMATCH")
    assert received.metadata == sent.metadata
    assert received.retry_after_seconds == 1.5


def test_every_reason_comes_back() -> None:
    """Every reason is sent and received."""
    kinds = sorted(BY_REASON.items())

    async def renew(request: session_pb2.RenewSessionRequest, context: Context) -> session_pb2.RenewSessionResponse:
        await context.abort_with_status(errors.to_status(BY_REASON[request.session_id]("told")))
        return session_pb2.RenewSessionResponse()

    async def run() -> list[WireError]:
        found = []
        async with serving(renew=renew) as address, connected(address) as channel:
            stub = session_pb2_grpc.SessionServiceStub(channel)
            for reason, _ in kinds:
                with pytest.raises(grpc.RpcError) as caught:
                    await stub.RenewSession(session_pb2.RenewSessionRequest(session_id=reason), timeout=20)
                found.append(errors.from_rpc_error(caught.value))
        return found

    received = asyncio.run(run())
    assert [kind for _, kind in kinds] == [type(error) for error in received]
    assert [(kind.default_code, reason) for reason, kind in kinds] == [(e.code, e.reason) for e in received]
    assert all(error.retry_after_seconds is None for error in received)


def test_long_texts_are_cut_to_what_trailers_carry() -> None:
    """Texts are cut so that trailers stay below 8 KiB and keep the reason."""
    received = unary(errors.to_status(SpecMismatch("ß" * 50_000, metadata={f"k{n}": "ü" * 500 for n in range(100)})))
    assert type(received) is SpecMismatch
    assert received.message.endswith("...")
    assert 450 < len(received.message) < 1001
    assert len(received.metadata) >= 1


def test_a_new_reason_of_a_newer_peer_keeps_its_name() -> None:
    """An unknown reason has the general class, with code, reason and text."""
    received = unary(errors.to_status(WireError("novel", code=grpc.StatusCode.ABORTED, reason="NEVER_HEARD_OF")))
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
    received = unary(foreign(code_pb2.UNAVAILABLE, info, retry))
    assert type(received) is WireError
    assert (received.code, received.reason) == (grpc.StatusCode.UNAVAILABLE, "")
    assert received.retry_after_seconds == 2.0


@pytest.mark.parametrize(("seconds", "expected"), [(-5, 0.0), (10**9, 3600.0)])
def test_senseless_retry_delays_are_bounded(seconds: int, expected: float) -> None:
    """Impossible retry delays are limited."""
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.seconds = seconds
    assert expected == unary(foreign(code_pb2.UNAVAILABLE, retry)).retry_after_seconds


def test_details_that_cannot_be_read_count_as_absent() -> None:
    """Invalid trailers are ignored."""

    async def renew(_: session_pb2.RenewSessionRequest, context: Context) -> session_pb2.RenewSessionResponse:
        await context.abort(grpc.StatusCode.INTERNAL, "odd", ((errors.DETAILS_KEY, b"\xff\xff\xff"),))
        return session_pb2.RenewSessionResponse()

    async def run() -> WireError:
        async with serving(renew=renew) as address, connected(address) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                await session_pb2_grpc.SessionServiceStub(channel).RenewSession(REQUEST, timeout=20)
            return errors.from_rpc_error(caught.value)

    received = asyncio.run(run())
    assert type(received) is WireError
    assert (received.code, received.message) == (grpc.StatusCode.INTERNAL, "odd")


def test_a_bare_rpc_error_is_unknown() -> None:
    """A bare RpcError is UNKNOWN."""
    received = errors.from_rpc_error(grpc.RpcError())
    assert (received.code, received.reason) == (grpc.StatusCode.UNKNOWN, "")


def test_reasons_are_unique_words() -> None:
    """Reasons are unique."""
    assert len(WireError.__subclasses__()) == len(BY_REASON)
    assert all(reason.replace("_", "").isupper() for reason in BY_REASON)
