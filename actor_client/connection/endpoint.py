"""The two channels to the learner; all calls and streams have time limits and raise the protocol's own errors."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message
from rollcast.channels import channel_options
from rollcast.errors import Unauthenticated, WireError, from_rpc_error
from rollcast.tls import ClientSecurity, IdentityError
from rollcast.v1 import policy_pb2_grpc, session_pb2_grpc, trajectory_pb2_grpc

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")

# Seconds for an opening or a renewal.
CALL_SECONDS = 5.0
# Just after its start, the learner takes seconds to measure the first declaration of a behavior.
DECLARE_SECONDS = 30.0
CLOSE_SECONDS = 1.0
# Seconds for the first message of a stream.
FIRST_ANSWER_SECONDS = 10.0


class Endpoint:
    """Channels of one connection, as an asynchronous context manager.

    Sessions and uploads share a channel. Policies have another, so that a large policy does not delay acks.
    Each connection has new channels, which dial at once; a used channel would first wait out its own backoff. Token and
    certificates are read for each connection, so that they can be replaced while the actor runs.

    Args:
        address: Address of the learner.
        security: How to connect.

    Attributes:
        metadata: Metadata of every call: the token.
    """

    def __init__(self, address: str, security: ClientSecurity = ClientSecurity()) -> None:  # noqa: B008 - frozen
        self._address = address
        self._security = security

    async def __aenter__(self) -> Self:
        with identity_errors():
            self.metadata = self._security.metadata()
            self._control = self._security.aio_channel(self._address, channel_options())
            self._bulk = self._security.aio_channel(self._address, channel_options())
        self.sessions = session_pb2_grpc.SessionServiceStub(self._control)
        self.trajectories = trajectory_pb2_grpc.TrajectoryServiceStub(self._control)
        self.policies = policy_pb2_grpc.PolicyServiceStub(self._bulk)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.gather(self._control.close(), self._bulk.close())


async def call(
    method: "grpc.aio.UnaryUnaryMultiCallable[Request, Response]",
    request: Request,
    seconds: float = CALL_SECONDS,
    *,
    metadata: tuple[tuple[str, str], ...] = (),
) -> Response:
    """Calls a unary method.

    Args:
        method: Method of a stub.
        request: Its request.
        seconds: The deadline.
        metadata: Metadata of the call; that of the endpoint.

    Raises:
        WireError: The learner or gRPC answered with an error.
    """
    with wire_errors(request.DESCRIPTOR.name.removesuffix("Request"), seconds):
        return await method(request, timeout=seconds, metadata=metadata)


@contextmanager
def identity_errors() -> Iterator[None]:
    """Converts an unreadable token or certificate to UNAUTHENTICATED: its file may be being replaced.

    Raises:
        WireError: In place of an IdentityError.
    """
    try:
        yield
    except IdentityError as error:
        raise Unauthenticated(str(error)) from None


@contextmanager
def wire_errors(name: str, seconds: float) -> Iterator[None]:
    """Converts errors of gRPC to the protocol's own; a time-out names the call and its limit.

    Args:
        name: Name of the call.
        seconds: Longest time for its answer, or for the first answer of a stream.

    Raises:
        WireError: In place of any error of gRPC.
    """
    try:
        yield
    except grpc.RpcError as error:
        cause = from_rpc_error(error)
        if cause.code is grpc.StatusCode.DEADLINE_EXCEEDED and not cause.reason:  # gRPC's own time limit
            raise _late(name, seconds) from None
        raise cause from None
    except TimeoutError:
        raise _late(name, seconds) from None
    except asyncio.InvalidStateError:
        # A write on a stream that has ended already; the reading side has the status.
        raise WireError("the stream has ended", code=grpc.StatusCode.UNAVAILABLE) from None


def _late(name: str, seconds: float) -> WireError:
    text = f"{name} was not answered within {seconds:.3g} s"
    return WireError(text, code=grpc.StatusCode.DEADLINE_EXCEEDED)


async def first_of(*coroutines: Coroutine[object, object, object]) -> None:
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
