"""Intercepts calls of the gRPC servers: counts calls and messages, and turns errors into statuses with a reason."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import grpc
import structlog
from grpc._cython import cygrpc  # type: ignore[attr-defined]
from rollcast.errors import Unexpected, WireError, to_status

from learner.service.calls.methods import BOUND, Handlers
from learner.service.metrics.learner import CallMetrics, ServerCallMetrics

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}

_log = structlog.get_logger(__name__)


def rewrapped(handler: Handler, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Handler:
    """Returns a handler of the same kind and messages with another call.

    Args:
        handler: The handler of a method.
        wrap: Returns the other call; gets the kind, such as ``unary_stream``, and the handler's own call.
    """
    for kind in ("unary_unary", "stream_unary", "unary_stream", "stream_stream"):
        inner = getattr(handler, kind)
        if inner is not None:
            make: Callable[..., Handler] = getattr(grpc, f"{kind}_rpc_method_handler")
            return make(wrap(kind, inner), handler.request_deserializer, handler.response_serializer)
    return handler


async def run_handler(inner: Callable[..., Any], request: Any, context: Context) -> Any:
    """Calls a handler, writes what it yields if it is an asynchronous generator, and returns its response, if any."""
    result = inner(request, context)
    if not isinstance(result, AsyncIterator):
        return await result
    async for response in result:
        await context.write(response)
    return None


class CallGuard(grpc.aio.ServerInterceptor):
    """Turns a WireError into a rich status and any other error into INTERNAL with an incident id; counts calls.

    The traceback of an unexpected error is logged under this id and never sent to the client. Handlers may be
    coroutines or asynchronous generators.

    Args:
        count: Called with the reason of every error that is answered.
        metrics: Metrics in which calls are counted.

    Attributes:
        incidents: Number of unexpected errors.
    """

    def __init__(self, count: Callable[[str], None], metrics: ServerCallMetrics) -> None:
        self.incidents = 0
        self._count = count
        self._metrics = metrics

    def declare(self, service: str, handlers: Handlers) -> None:
        """Creates all metric series of a service's methods."""
        for method, handler in handlers.items():
            self._metrics.declare(service, method, streams=(handler.request_streaming, handler.response_streaming))

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler of a call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # gRPC answers UNIMPLEMENTED
        method = handler_call_details.method
        return rewrapped(
            handler,
            lambda kind, inner: self._wrap(
                inner, method, reads=kind.startswith("stream"), writes=kind.endswith("stream")
            ),
        )

    def _wrap(self, inner: Callable[..., Any], method: str, *, reads: bool, writes: bool) -> Callable[..., Any]:
        def received(request: Any, metrics: CallMetrics) -> Any:
            if reads:
                return _counted(request, metrics)
            metrics.received.inc()
            return request

        async def answer(request: Any, context: Context) -> Any:
            async with self._watched(context, method) as metrics:
                response = await inner(received(request, metrics), context)
                metrics.sent.inc()
                return response

        async def write(request: Any, context: Context) -> None:
            async with self._watched(context, method) as metrics:
                counting: Any = _CountingContext(context, metrics)
                await run_handler(inner, received(request, metrics), counting)

        return write if writes else answer

    @contextlib.asynccontextmanager
    async def _watched(self, context: Context, method: str) -> AsyncIterator[CallMetrics]:
        """Counts a call when it starts, and when it ends with its code and duration; answers its errors."""
        metrics, began = self._metrics.of(method), time.monotonic()
        metrics.started.inc()
        try:
            yield metrics
        except cygrpc.ExecuteBatchError:
            raise asyncio.CancelledError from None  # a write failed: the client has gone, and gRPC is about to say so
        except Exception as error:  # noqa: BLE001 - the last one who can; nothing is swallowed
            await self._abort(error, context, method)
        finally:
            metrics.handled(_code(context, sys.exception()), time.monotonic() - began)

    async def _abort(self, error: Exception, context: Context, method: str) -> None:
        """Ends a call with the status of an error, by raising as gRPC expects."""
        if isinstance(error, grpc.aio.AbortError) or context.cancelled() or context.done():
            raise error  # aborted already, or the client has gone
        if not isinstance(error, WireError):
            self.incidents += 1
            incident = secrets.token_hex(6)
            _log.error("request_failed", method=method, incident=incident, exc_info=error)
            error = Unexpected.with_incident(incident)
        self._count(error.reason)
        if BOUND in error.metadata:
            self._metrics.bounded(error.metadata[BOUND])
        await context.abort_with_status(to_status(error))


class _CountingContext:
    """A context that counts the messages written through it and delegates everything else."""

    def __init__(self, inner: Context, metrics: CallMetrics) -> None:
        self._inner = inner
        self._sent = metrics.sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, message: Any) -> None:
        """Writes a message."""
        await self._inner.write(message)
        self._sent.inc()


async def _counted(requests: AsyncIterator[Any], metrics: CallMetrics) -> AsyncIterator[Any]:
    async for request in requests:
        metrics.received.inc()
        yield request


def _code(context: Context, error: BaseException | None) -> grpc.StatusCode:
    if isinstance(error, asyncio.CancelledError) or context.cancelled():
        return grpc.StatusCode.CANCELLED
    found = context.code()
    code = _CODES.get(found, grpc.StatusCode.UNKNOWN) if isinstance(found, int) else found
    if error is not None and code in {None, grpc.StatusCode.OK}:
        return grpc.StatusCode.UNKNOWN
    return code or grpc.StatusCode.OK
