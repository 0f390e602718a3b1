"""Tests the interceptor with failing handlers of all four kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry
from rollcast.errors import Draining

from learner.service.calls.guard import CallGuard
from learner.service.metrics.learner import ServerCallMetrics
from tests.learner.service.calls.harness import failure


def fail(how: bytes) -> None:
    """Raises the requested error."""
    if how == b"wire":
        raise Draining("the learner stops", retry_after_seconds=2.5, metadata={"a": "b"})
    if how == b"bug":
        raise KeyError("secret")


async def answer(request: bytes, context: Any) -> bytes:
    """Returns a unary response."""
    if request == b"abort":
        await context.abort(grpc.StatusCode.ALREADY_EXISTS, "by hand")
    fail(request)
    return b"fine"


async def answer_stream(requests: AsyncIterator[bytes], context: Any) -> bytes:
    """Returns a unary response to a stream."""
    return await answer(b"".join([request async for request in requests]), context)


async def write(request: bytes, context: Any) -> None:
    """Writes a stream from a coroutine."""
    await context.write(b"first")
    await context.write(await answer(request, context))


async def generate(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """Yields a stream from a generator."""
    yield b"first"
    yield await answer_stream(requests, context)


@asynccontextmanager
async def guarded() -> AsyncIterator[tuple[CallGuard, Any]]:
    """Starts a server with one method of each kind, and a channel to it."""
    guard = CallGuard(lambda _: None, ServerCallMetrics(CollectorRegistry()))
    server = grpc.aio.server(interceptors=[guard])
    handlers: dict[str, Any] = {
        "UU": grpc.unary_unary_rpc_method_handler(answer),
        "SU": grpc.stream_unary_rpc_method_handler(answer_stream),
        "US": grpc.unary_stream_rpc_method_handler(write),
        "SS": grpc.stream_stream_rpc_method_handler(generate),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield guard, channel
    await server.stop(None)


async def collect(call: Any) -> list[bytes]:
    """Reads a stream to its end."""
    return [message async for message in call]


CALLS: dict[str, Callable[[Any, bytes], Any]] = {
    "UU": lambda channel, how: channel.unary_unary("/t.T/UU")(how),
    "SU": lambda channel, how: channel.stream_unary("/t.T/SU")(iter([how])),
    "US": lambda channel, how: collect(channel.unary_stream("/t.T/US")(how)),
    "SS": lambda channel, how: collect(channel.stream_stream("/t.T/SS")(iter([how]))),
}


@pytest.mark.parametrize("kind", CALLS)
async def test_errors_become_statuses(kind: str) -> None:
    """A WireError is sent with its details, a bug as an incident, and an abort unchanged."""
    async with guarded() as (guard, channel):
        call = CALLS[kind]
        result = await call(channel, b"well")
        assert result == (b"fine" if kind.endswith("U") else [b"first", b"fine"])
        error = await failure(call(channel, b"wire"))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert (error.retry_after_seconds, error.metadata) == (2.5, {"a": "b"})
        error = await failure(call(channel, b"bug"))
        assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "UNEXPECTED")
        assert "secret" not in f"{error.message}{error.metadata}"
        error = await failure(call(channel, b"abort"))
        assert (error.code, error.message) == (grpc.StatusCode.ALREADY_EXISTS, "by hand")
        assert guard.incidents == 1


async def test_unknown_methods_are_unimplemented() -> None:
    """An unknown method is UNIMPLEMENTED and no incident."""
    async with guarded() as (guard, channel):
        error = await failure(channel.unary_unary("/t.T/Nothing")(b""))
        assert error.code is grpc.StatusCode.UNIMPLEMENTED
        assert guard.incidents == 0


async def test_a_client_that_leaves_is_no_incident() -> None:
    """A client that cancels a stream causes no incident."""
    async with guarded() as (guard, channel):
        call = channel.stream_stream("/t.T/SS")()
        await call.write(b"well")
        assert await call.read() == b"first"
        call.cancel()
        assert await channel.unary_unary("/t.T/UU")(b"well") == b"fine"
        assert guard.incidents == 0
