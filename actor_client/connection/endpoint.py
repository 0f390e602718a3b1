"""The two channels to the learner, with calls and streams that end in time and raise the protocol's own errors."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

import grpc
from rollcast.channels import channel_options
from rollcast.errors import WireError, from_rpc_error
from rollcast.v1 import policy_pb2_grpc, session_pb2_grpc, trajectory_pb2_grpc

Request = TypeVar("Request")
Response = TypeVar("Response")

# An opening, a declaration or a renewal that takes longer will not come.
CALL_SECONDS = 5.0
CLOSE_SECONDS = 1.0
# What a stream may take to answer its first message.
FIRST_ANSWER_SECONDS = 10.0


class Endpoint:
    """Channels of one connection, as an asynchronous context manager.

    Sessions and uploads share a channel, policies have their own: a large policy must not stand in the way of acks.
    New channels for each connection dial at once, where a used one would first sit out its own backoff.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    async def __aenter__(self) -> Self:
        self._control = grpc.aio.insecure_channel(self._address, options=channel_options())
        self._bulk = grpc.aio.insecure_channel(self._address, options=channel_options())
        self.sessions = session_pb2_grpc.SessionServiceStub(self._control)
        self.trajectories = trajectory_pb2_grpc.TrajectoryServiceStub(self._control)
        self.policies = policy_pb2_grpc.PolicyServiceStub(self._bulk)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.gather(self._control.close(), self._bulk.close())


async def call(
    method: "grpc.aio.UnaryUnaryMultiCallable[Request, Response]", request: Request, seconds: float = CALL_SECONDS
) -> Response:
    """Calls a unary method.

    Args:
        method: Of a stub.
        request: Its request.
        seconds: The deadline.

    Raises:
        WireError: What the learner or gRPC answered.
    """
    with wire_errors():
        return await method(request, timeout=seconds)


@contextmanager
def wire_errors() -> Iterator[None]:
    """Turns what gRPC raises into the protocol's own errors.

    Raises:
        WireError: In place of any error of gRPC.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    except TimeoutError:
        raise WireError(
            f"no answer within {FIRST_ANSWER_SECONDS:g} s", code=grpc.StatusCode.DEADLINE_EXCEEDED
        ) from None
    except asyncio.InvalidStateError:
        # A write on a stream that has ended already; the reading side has the status.
        raise WireError("the stream has ended", code=grpc.StatusCode.UNAVAILABLE) from None


async def first_of(*coroutines: Coroutine[object, object, None]) -> None:
    """Runs coroutines until one returns or raises; the others are cancelled and awaited.

    Raises:
        Exception: The first error of a coroutine.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task in done:
            task.result()
