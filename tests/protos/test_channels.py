"""Tests the channel options on real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]
from rollcast import limits
from rollcast.channels import channel_options, server_options
from rollcast.v1 import session_pb2, session_pb2_grpc

from tests.protos.serving import Context, connected, serving


@pytest.mark.parametrize("size_bytes", [1000, 1000 + limits.MESSAGE_HEADROOM_BYTES - 200])
def test_the_largest_payload_fits_with_what_surrounds_it(size_bytes: int) -> None:
    """The largest payload fits gRPC's limit with its surrounding message."""

    async def renew(request: session_pb2.RenewSessionRequest, _: Context) -> session_pb2.RenewSessionResponse:
        return session_pb2.RenewSessionResponse(lease_ms=len(request.session_id))

    async def run() -> int:
        async with serving(renew=renew, max_message_bytes=1000) as address, connected(address, 1000) as channel:
            request = session_pb2.RenewSessionRequest(session_id="x" * size_bytes)
            response = await session_pb2_grpc.SessionServiceStub(channel).RenewSession(request, timeout=20)
            return response.lease_ms

    assert size_bytes == asyncio.run(run())


def test_two_channels_have_two_connections() -> None:
    """Two channels have two connections."""
    peers = set()

    async def renew(_: session_pb2.RenewSessionRequest, context: Context) -> session_pb2.RenewSessionResponse:
        peers.add(context.peer())
        return session_pb2.RenewSessionResponse()

    async def run() -> None:
        async with serving(renew=renew) as address, connected(address) as one, connected(address) as other:
            for channel in (one, other, one, other):
                await session_pb2_grpc.SessionServiceStub(channel).RenewSession(
                    session_pb2.RenewSessionRequest(), timeout=20
                )

    asyncio.run(run())
    assert len(peers) == 2


def test_every_option_is_one_that_grpc_knows() -> None:
    """Every option is a name in gRPC's library, which ignores others."""
    library = Path(cygrpc.__file__).read_bytes()
    names = {name for name, _ in [*server_options(), *channel_options()]}
    assert [name for name in names if name.encode() + b"\0" not in library] == []


def test_a_client_probes_no_more_often_than_a_server_allows() -> None:
    """The client's ping interval is at least the server's minimum."""
    server, client = dict(server_options()), dict(channel_options())
    assert server["grpc.http2.min_ping_interval_without_data_ms"] * 2 <= client["grpc.keepalive_time_ms"]
    assert server["grpc.keepalive_permit_without_calls"] == client["grpc.keepalive_permit_without_calls"] == 1
