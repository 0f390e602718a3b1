"""Tests each injected fault of a call on a real server."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from tests.learner.service.calls.harness import eventually
from tests.nightly.chaos.injection import OF_STREAMS, CallFault, FaultyChannel, Injector, Kind

SERVICE = "chaos.Echo"


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[list[bytes], Injector, FaultyChannel]]:
    """Serves for a block what repeats messages, and yields the list of what it got."""
    got: list[bytes] = []

    async def repeat(request: bytes, context: Any) -> bytes:
        got.append(request)
        return request

    async def repeat_all(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for message in requests:
            got.append(message)
            yield message

    injector, server = Injector(), grpc.aio.server()
    handlers: dict[str, Any] = {
        "Call": grpc.unary_unary_rpc_method_handler(repeat),
        "Stream": grpc.stream_stream_rpc_method_handler(repeat_all),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield got, injector, FaultyChannel(channel, injector)
    await server.stop(None)


@pytest.mark.parametrize(
    ("kind", "fails", "received"),
    [
        (Kind.LOSE_REQUEST, True, 0),
        (Kind.LOSE_REPLY, True, 1),
        (Kind.FAIL_IN_FLIGHT, True, 1),
        (Kind.DELAY, False, 1),
        (Kind.DUPLICATE, False, 2),
    ],
)
async def test_a_call(kind: Kind, fails: bool, received: int) -> None:
    """A call fails or not, and the server got it as often as the fault says; the next one is not affected."""
    async with echo() as (got, injector, channel):
        call = channel.unary_unary(f"/{SERVICE}/Call")
        injector.arm(CallFault(kind, "Call", seconds=0.01))
        if fails:
            with pytest.raises(grpc.aio.AioRpcError, match="injected"):
                await call(b"1")
        else:
            assert await call(b"1") == b"1"
        await eventually(lambda: len(got) >= received)
        assert got == [b"1"] * received
        assert await call(b"2") == b"2"


async def _exchange(stream: Any, message: bytes) -> object:
    await stream.write(message)
    return await stream.read()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", OF_STREAMS)
async def test_a_stream(kind: Kind, after: bool) -> None:
    """A stream breaks before or after its second message in one direction, or only stalls there."""
    async with echo() as (got, injector, channel):
        stream = channel.stream_stream(f"/{SERVICE}/Stream")()
        injector.arm(CallFault(kind, "Stream", message=2, after=after, seconds=0.01))
        assert await _exchange(stream, b"1") == b"1"
        if kind in {Kind.STALL_READ, Kind.STALL_WRITE}:
            assert await _exchange(stream, b"2") == b"2"
        else:
            with pytest.raises(grpc.aio.AioRpcError, match="injected"):
                await _exchange(stream, b"2")
        if kind is Kind.BREAK_WRITE and not after:
            assert got == [b"1"]


async def test_a_failing_call_whose_caller_is_cancelled() -> None:
    """A call that fails after its caller was cancelled leaves no error that nobody retrieved."""
    injector, complaints = Injector(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with grpc.aio.insecure_channel("127.0.0.1:1") as real:
        call = FaultyChannel(real, injector).unary_unary(f"/{SERVICE}/Call")
        injector.arm(CallFault(Kind.FAIL_IN_FLIGHT, "Call"))
        caller = asyncio.ensure_future(call(b"1", timeout=0.2))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.sleep(0.5)
    del caller
    gc.collect()
    assert complaints == []


async def test_a_reader_of_a_stream_that_a_writer_breaks() -> None:
    """A read that waits when the stream breaks fails as gRPC would, and is not cancelled."""
    async with echo() as (_, injector, channel):
        stream = channel.stream_stream(f"/{SERVICE}/Stream")()
        await stream.write(b"1")
        assert await stream.read() == b"1"
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0)
        injector.arm(CallFault(Kind.BREAK_WRITE, "Stream"))
        with pytest.raises(grpc.aio.AioRpcError, match="injected"):
            await stream.write(b"2")
        with pytest.raises(grpc.aio.AioRpcError, match="injected"):
            await reading
