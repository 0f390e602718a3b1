"""Common part of every HTTP answer: access checks, safe headers, and errors as JSON without internals."""

from __future__ import annotations

import ipaddress
import json
import secrets
from typing import Any, Final

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from rollcast.errors import WireError

from learner.observe.jsonfile import as_json

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


def to_json(document: dict[str, Any]) -> bytes:
    """Returns a document as JSON, without NaN and infinities."""
    return json.dumps(as_json(document), allow_nan=False, separators=(",", ":")).encode("ascii")


def json_answer(
    document: dict[str, object], *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Returns a JSON answer."""
    return web.Response(body=to_json(document), status=status, headers=headers, content_type="application/json")


def make_guard(*, only_local_names: bool) -> Middleware:
    """Returns the outermost middleware.

    Args:
        only_local_names: Whether to refuse requests whose Host is not this machine, so that a page of another site
            whose name was pointed here (DNS rebinding) can read nothing. For loopback addresses only; elsewhere the
            names are unknown.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if only_local_names and not is_local_name(request.headers.getall(hdrs.HOST, [])):
                raise RequestRefused(
                    403,
                    "WRONG_HOST",
                    "this port accepts only the host names localhost, 127.0.0.1 and [::1]; use one of these",
                )
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
            response = _answer_for(error, request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return guard


def is_local_name(hosts: list[str]) -> bool:
    """Returns whether a request's Host names this machine, with any port: a tunnel may use another one."""
    if len(hosts) != 1:
        return False
    name = hosts[0].rpartition(":")[0] if hosts[0].rpartition("]")[2].count(":") else hosts[0]
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _answer_for(error: Exception, request: web.Request) -> web.Response:
    if isinstance(error, RequestRefused):
        return _error(error.status, error.reason, error.message, error.headers)
    if isinstance(error, WireError):  # a checkpoint that cannot be saved, with its reason
        return _error(409, error.reason, str(error))
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
