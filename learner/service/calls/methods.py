"""Registers methods in a server. Requests stay bytes until a handler parses them, so that invalid ones get a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Final, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from rollcast.errors import BadRequest
from rollcast.limits import MAX_REPORTS, MAX_REQUEST_BYTES

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

BytesContext: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handlers: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"

BOUND: Final = "bound"
"""Entry in the metadata of an error that refuses what would cost too much: which bound it is, also in the metrics."""


def parse(kind: type[Request], raw: bytes, max_bytes: int) -> Request:
    """Parses a message of limited size: its parts may take fifty times as much memory, and seconds of the event loop.

    Raises:
        BadRequest: The message is too large, or the bytes are not such a message.
    """
    if len(raw) > max_bytes:
        raise BadRequest(
            f"{kind.DESCRIPTOR.name} has {len(raw)} bytes; at most {max_bytes} are allowed",
            metadata={BOUND: "request_bytes", "max_bytes": str(max_bytes)},
        )
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise BadRequest(f"{len(raw)} bytes are not a valid {kind.DESCRIPTOR.full_name}") from None


def check_entries(entries: Collection[object], what: str) -> None:
    """Refuses a longer list than any actor has, before an object is made of each entry.

    Raises:
        BadRequest: There are more than `MAX_REPORTS` entries.
    """
    if len(entries) > MAX_REPORTS:
        raise BadRequest(
            f"{len(entries)} {what} in one request; at most {MAX_REPORTS} are allowed", metadata={BOUND: "entries"}
        )


def unary(
    kind: type[Request],
    answer: Callable[[Request, BytesContext], Awaitable[Response]],
    *,
    max_bytes: int = MAX_REQUEST_BYTES,
) -> grpc.RpcMethodHandler[Any, Any]:
    """Creates the handler of a method with one request and one response."""

    async def call(raw: bytes, context: BytesContext) -> bytes:
        return (await answer(parse(kind, raw, max_bytes), context)).SerializeToString()

    return grpc.unary_unary_rpc_method_handler(call)


def unary_stream(
    kind: type[Request], answer: Callable[[Request, BytesContext], Awaitable[None]]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Creates the handler of a method that writes serialized responses to its context."""

    async def call(raw: bytes, context: BytesContext) -> None:
        await answer(parse(kind, raw, MAX_REQUEST_BYTES), context)

    return grpc.unary_stream_rpc_method_handler(call)


def stream_stream(
    answer: Callable[[AsyncIterator[bytes], BytesContext], Awaitable[None]],
) -> grpc.RpcMethodHandler[Any, Any]:
    """Creates the handler of a method that reads and writes serialized messages itself."""
    return grpc.stream_stream_rpc_method_handler(answer)


def add_service(server: grpc.aio.Server, name: str, handlers: Handlers) -> None:
    """Adds a service to a server."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
