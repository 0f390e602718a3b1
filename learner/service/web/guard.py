"""Common part of every HTTP answer: access checks, safe headers, and errors as JSON without internals."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import grpc
import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from rollcast.errors import NotAllowed, Unauthenticated, Unexpected, WireError
from rollcast.http_connections import Connections
from rollcast.http_hosts import AllowedHosts

from learner.shared.observe.document import to_json

ServerHandler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES: Final = 1024
"""Largest body of a request; no request needs one."""

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "rollcast",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_STATUSES: Final = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
"""HTTP statuses of the errors of Rollcast, by their code; that of the others is 409."""
_REFUSED: Final = {401: Unauthenticated.default_reason, 403: NotAllowed.default_reason}

log = structlog.get_logger(__name__)


class RequestRefused(Exception):  # noqa: N818 - it says what happened
    """Raised if a request is answered with an error.

    Args:
        status: HTTP status.
        reason: Reason for programs.
        message: Message for people.
        headers: Headers of the answer.
    """

    def __init__(self, status: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.headers = headers or {}


def json_answer(
    document: dict[str, object], *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Returns a JSON answer."""
    return web.Response(body=to_json(document), status=status, headers=headers, content_type="application/json")


def make_guard(hosts: AllowedHosts, *, count: Callable[[str], object] = str) -> Middleware:
    """Returns the outermost middleware.

    Args:
        hosts: The hosts that requests may be for.
        count: Counts an error by its reason of the protocol.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if not hosts.allow(request.headers.getall(hdrs.HOST, [])):
                raise RequestRefused(403, "WRONG_HOST", hosts.refusal)
            if request.content_length is None and request.can_read_body:
                raise RequestRefused(
                    411,
                    "BODY_OF_UNKNOWN_SIZE",
                    "a request with a body must have a Content-Length",
                )
            if (request.content_length or 0) > MAX_BODY_BYTES:
                raise RequestRefused(413, "BODY_TOO_LARGE", f"a request body can have at most {MAX_BODY_BYTES} bytes")
            response = await handler(request)
        except Exception as error:  # noqa: BLE001 - the last one who can; nothing is swallowed
            reason = _counted(error, request)
            if reason:
                count(reason)
            response = _answer_for(error, request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return guard


def marked(connections: Connections) -> Middleware:
    """Returns the middleware that tells which connections are being answered."""

    @web.middleware
    async def mark(request: web.Request, handler: Handler) -> web.StreamResponse:
        with connections.answering(request.protocol):
            return await handler(request)

    return mark


def without_expectations(handler: ServerHandler) -> ServerHandler:
    """Returns a handler that refuses every ``Expect`` header but ``100-continue``.

    aiohttp answers the others before it calls a middleware, in a form of its own, and fails on one that is not text.
    """

    async def refuse_or_handle(request: web.BaseRequest) -> web.StreamResponse:
        expected = request.headers.getall(hdrs.EXPECT, [])
        if all(each.lower() == "100-continue" for each in expected):
            return await handler(request)
        answer = _error(
            417, "EXPECTATION_FAILED", "a request can expect nothing but 100-continue; leave the header Expect out"
        )
        answer.headers.update(_HEADERS)
        return answer

    return refuse_or_handle


def _counted(error: Exception, request: web.Request) -> str:
    """Returns the reason under which an error is counted; empty for none, as of a page on which nobody has signed in."""
    if isinstance(error, WireError):
        return error.reason
    if isinstance(error, RequestRefused):
        is_signed_out = error.reason == "NO_TOKEN" and request.method == "GET"
        return "" if is_signed_out else _REFUSED.get(error.status, "")
    return "" if isinstance(error, TimeoutError | web.HTTPException) else Unexpected.default_reason


def _answer_for(error: Exception, request: web.Request) -> web.Response:
    if isinstance(error, RequestRefused):
        return _error(error.status, error.reason, error.message, error.headers)
    if isinstance(error, WireError):  # such as a checkpoint that cannot be saved, with its reason
        return _error(_STATUSES.get(error.code, 409), error.reason, error.message)
    if isinstance(error, TimeoutError):
        return _error(504, "LATE", "the current update did not finish in time; try again, or check the learner's log")
    if isinstance(error, web.HTTPNotFound):
        return _error(404, "NOT_FOUND", "this address does not exist; the status page is at /")
    if isinstance(error, web.HTTPException):
        kept = {"Allow": error.headers[hdrs.ALLOW]} if hdrs.ALLOW in error.headers else None
        return _error(error.status, error.reason.upper().replace(" ", "_"), error.reason, kept)
    incident = secrets.token_hex(6)
    log.error("http_request_failed", path=request.path[:200], incident=incident, exc_info=error)
    return _error(
        500, "INTERNAL", f"an unexpected error occurred; the learner's log describes it as incident {incident}"
    )


def _error(status: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return json_answer({"error": {"reason": reason, "message": message}}, status=status, headers=headers)
