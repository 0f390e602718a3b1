"""The outermost interceptor: nothing leaves the service but an answer or a status with a reason."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import structlog
from rollcast.errors import Unexpected, WireError, to_status

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
