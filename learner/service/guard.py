"""The interceptors of the gRPC servers: one turns errors into statuses, one counts calls and messages."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import grpc
import structlog
from rollcast.errors import Unexpected, WireError, to_status

from learner.observe.metrics.learner import (
    BIDI_STREAM,
    CLIENT_STREAM,
    SERVER_STREAM,
    UNARY,
    CallMetrics,
    ServerCallMetrics,
)
from learner.service.methods import Handlers

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_log = structlog.get_logger(__name__)


class ErrorGuard(grpc.aio.ServerInterceptor):
    """Turns a WireError into a rich status, and anything else into INTERNAL with an incident id.

    The traceback of the latter goes to the log under that id, and never to the client. Works for all four kinds of
    calls, whether their handler is a coroutine or an asynchronous generator.

    Args:
        count: told the reason of every error that is answered.

    Attributes:
        incidents: how many unexpected errors there were.
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self.incidents = 0
        self._count = count

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler of a call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # gRPC answers UNIMPLEMENTED
        return self._wrap(handler, handler_call_details.method)

    def _wrap(self, handler: Handler, method: str) -> Handler:
        codec = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._answering(handler.unary_unary, method), *codec)
        if handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._answering(handler.stream_unary, method), *codec)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._writing(handler.unary_stream, method), *codec)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._writing(handler.stream_stream, method), *codec)
        return handler

    def _answering(self, inner: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def call(request: Any, context: Context) -> Any:
            try:
                return await inner(request, context)
            except Exception as error:  # noqa: BLE001 - the last one who can; nothing is swallowed
                return await self._abort(error, context, method)

        return call

    def _writing(self, inner: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def call(request: Any, context: Context) -> None:
            try:
                result = inner(request, context)
                if isinstance(result, AsyncIterator):
                    async for response in result:
                        await context.write(response)
                else:
                    await result
            except Exception as error:  # noqa: BLE001 - the last one who can; nothing is swallowed
                await self._abort(error, context, method)

        return call

    async def _abort(self, error: Exception, context: Context, method: str) -> None:
        """Ends a call with the status of an error; raises what gRPC expects."""
        if isinstance(error, grpc.aio.AbortError) or context.cancelled() or context.done():
            raise error  # aborted already, or nobody listens any more
        if not isinstance(error, WireError):
            self.incidents += 1
            incident = secrets.token_hex(6)
            _log.error("request_failed", method=method, incident=incident, exc_info=error)
            error = Unexpected.with_incident(incident)
        self._count(error.reason)
        await context.abort_with_status(to_status(error))


_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}


class CallCounter(grpc.aio.ServerInterceptor):
    """Counts every call of the declared methods. Give it first, so that it sees the status that `ErrorGuard` makes.

    Args:
        metrics: where they are counted.
    """

    def __init__(self, metrics: ServerCallMetrics) -> None:
        self._metrics = metrics

    def declare(self, service: str, handlers: Handlers) -> None:
        """Makes all series of a service's methods."""
        for method, handler in handlers.items():
            self._metrics.declare(_kind(handler), service, [method])

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler of a call."""
        handler = await continuation(handler_call_details)
        metrics = self._metrics.of(handler_call_details.method)
        if handler is None or metrics is None:
            return handler
        codec = (handler.request_deserializer, handler.response_serializer)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(_answering(handler.unary_unary, metrics), *codec)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(_writing(handler.unary_stream, metrics), *codec)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(_talking(handler.stream_stream, metrics), *codec)
        return handler


class _CountingContext:
    """A context that counts what is written through it; all else is the inner one's."""

    def __init__(self, inner: Context, metrics: CallMetrics) -> None:
        self._inner = inner
        self._sent = metrics.sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, message: Any) -> None:
        """Writes a message."""
        await self._inner.write(message)
        self._sent.inc()


def _answering(inner: Callable[..., Any], metrics: CallMetrics) -> Callable[..., Any]:
    async def call(request: Any, context: Context) -> Any:
        metrics.received.inc()
        async with _Measured(context, metrics):
            response = await inner(request, context)
            metrics.sent.inc()
            return response

    return call


def _writing(inner: Callable[..., Any], metrics: CallMetrics) -> Callable[..., Any]:
    async def call(request: Any, context: Context) -> None:
        metrics.received.inc()
        async with _Measured(context, metrics):
            await inner(request, _CountingContext(context, metrics))

    return call


def _talking(inner: Callable[..., Any], metrics: CallMetrics) -> Callable[..., Any]:
    async def call(requests: AsyncIterator[Any], context: Context) -> None:
        async with _Measured(context, metrics):
            await inner(_counted(requests, metrics), _CountingContext(context, metrics))

    return call


async def _counted(requests: AsyncIterator[Any], metrics: CallMetrics) -> AsyncIterator[Any]:
    async for request in requests:
        metrics.received.inc()
        yield request


class _Measured:
    """Counts a call at its beginning, and at its end with its code and time."""

    def __init__(self, context: Context, metrics: CallMetrics) -> None:
        self._context = context
        self._metrics = metrics
        self._began = time.monotonic()

    async def __aenter__(self) -> None:
        self._metrics.started.inc()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: Any) -> None:
        self._metrics.handled(self._code(error), time.monotonic() - self._began)

    def _code(self, error: BaseException | None) -> grpc.StatusCode:
        if isinstance(error, asyncio.CancelledError) or self._context.cancelled():
            return grpc.StatusCode.CANCELLED
        found = self._context.code()
        code = _CODES.get(found, grpc.StatusCode.UNKNOWN) if isinstance(found, int) else found
        if error is not None and code in {None, grpc.StatusCode.OK}:
            return grpc.StatusCode.UNKNOWN
        return code or grpc.StatusCode.OK


def _kind(handler: Handler) -> str:
    if handler.request_streaming:
        return BIDI_STREAM if handler.response_streaming else CLIENT_STREAM
    return SERVER_STREAM if handler.response_streaming else UNARY
