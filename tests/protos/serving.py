"""Runs a real server for tests of the contract, with handlers chosen by each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from rollcast.channels import channel_options, server_options
from rollcast.v1 import session_pb2, session_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]
Renew = Callable[[session_pb2.RenewSessionRequest, Context], Awaitable[session_pb2.RenewSessionResponse]]


class Sessions(session_pb2_grpc.SessionServiceServicer):
    """Answers RenewSession as the test says."""

    def __init__(self, renew: Renew) -> None:
        self._renew = renew

    async def RenewSession(
        self, request: session_pb2.RenewSessionRequest, context: Context
    ) -> session_pb2.RenewSessionResponse:
        """Answers one unary call."""
        return await self._renew(request, context)


@asynccontextmanager
async def serving(renew: Renew | None = None, max_message_bytes: int = 1 << 20) -> AsyncIterator[str]:
    """Runs a server with the project's options; gives its address."""
    server = grpc.aio.server(options=server_options(max_message_bytes))
    if renew is not None:
        session_pb2_grpc.add_SessionServiceServicer_to_server(Sessions(renew), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def connected(address: str, max_message_bytes: int = 1 << 20) -> grpc.aio.Channel:
    """Opens a channel with the project's options."""
    return grpc.aio.insecure_channel(address, options=channel_options(max_message_bytes))
