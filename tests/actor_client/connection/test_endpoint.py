"""Tests the errors of calls that exceed their time limit."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from rollcast.errors import WireError
from rollcast.v1 import session_pb2

from actor_client.connection.endpoint import Endpoint, call

SERVICE = session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name


async def _silent(request: bytes, context: object) -> bytes:
    """Answers no call within the time limit of its caller."""
    await asyncio.sleep(60.0)
    return b""


async def _ask() -> None:
    server = grpc.aio.server()
    methods: dict[str, Any] = {"OpenSession": grpc.unary_unary_rpc_method_handler(_silent)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with Endpoint(f"127.0.0.1:{port}") as endpoint:
            await call(endpoint.sessions.OpenSession, session_pb2.OpenSessionRequest(), 0.25)
    finally:
        await server.stop(None)


def test_a_call_that_is_late_is_named_with_its_limit() -> None:
    """The error names the call and its limit, although gRPC says only `Deadline Exceeded`."""
    with pytest.raises(WireError, match=r"^OpenSession was not answered within 0\.25 s$") as caught:
        asyncio.run(_ask())
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
