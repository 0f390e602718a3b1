"""How methods are hung into a server: requests stay bytes until a handler parses them, so that garbage gets a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from rollcast.errors import BadRequest

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

BytesContext: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handlers: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"


def parse(kind: type[Request], raw: bytes) -> Request:
    """Parses a message.

    Raises:
        BadRequest: it is none.
    """
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise BadRequest(f"{len(raw)} bytes that are no {kind.DESCRIPTOR.full_name}") from None


def unary(
    kind: type[Request], answer: Callable[[Request, BytesContext], Awaitable[Response]]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Makes the handler of a method with one request and one response."""

    async def call(raw: bytes, context: BytesContext) -> bytes:
        return (await answer(parse(kind, raw), context)).SerializeToString()

    return grpc.unary_unary_rpc_method_handler(call)


def unary_stream(
    kind: type[Request], answer: Callable[[Request, BytesContext], Awaitable[None]]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Makes the handler of a method that writes serialized responses to its context."""

    async def call(raw: bytes, context: BytesContext) -> None:
        await answer(parse(kind, raw), context)

    return grpc.unary_stream_rpc_method_handler(call)


def stream_stream(
    answer: Callable[[AsyncIterator[bytes], BytesContext], Awaitable[None]],
) -> grpc.RpcMethodHandler[Any, Any]:
    """Makes the handler of a method that reads and writes serialized messages itself."""
    return grpc.stream_stream_rpc_method_handler(answer)


def add_service(server: grpc.aio.Server, name: str, handlers: Handlers) -> None:
    """Hangs a service into a server."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
