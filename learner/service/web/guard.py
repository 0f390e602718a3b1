"""Common part of every HTTP answer: access checks, safe headers, and errors as JSON without internals."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeAlias

import grpc
import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from rollcast.errors import NotAllowed, Unauthenticated, Unexpected, WireError

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


def make_guard(*, is_loopback: bool, names: Collection[str] = (), count: Callable[[str], object] = str) -> Middleware:
    """Returns the outermost middleware.

    It refuses requests for another host than the learner's, so that a page of another site whose name was pointed here
    (DNS rebinding) can read nothing.

    Args:
        is_loopback: Whether only this machine reaches the port; then no address but a loopback one is allowed.
        names: Further allowed host names.
        count: Counts an error by its reason of the protocol.
    """
    hosts = AllowedHosts(names, any_address=not is_loopback)

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


class AllowedHosts:
    """The host names that a request may be for, with any port: a tunnel may use another one.

    A port that other machines reach also accepts any IP address. The address of a machine behind a published port of a
    container is unknown here, and a page cannot rebind an address: that needs a name.

    Args:
        names: Host names, in addition to those of this machine.
        any_address: Whether addresses beyond loopback, and this machine's name, are allowed.
    """

    def __init__(self, names: Collection[str], *, any_address: bool) -> None:
        own = [socket.gethostname()] if any_address else []
        self._names = frozenset(_canonical(name) for name in ("localhost", *own, *names))
        self._any_address = any_address

    @property
    def refusal(self) -> str:
        """Text of a refusal. It names no host, because anyone can read it."""
        own = "an IP address or localhost" if self._any_address else "localhost, 127.0.0.1 or [::1]"
        return f"this port does not answer to the host name of the request: use {own}, or add the name to rollcast.http_hosts"

    def allow(self, hosts: Sequence[str]) -> bool:
        """Returns whether a request with these Host headers is allowed; there must be one."""
        if len(hosts) != 1:
            return False
        name = hosts[0].rpartition(":")[0] if hosts[0].rpartition("]")[2].count(":") else hosts[0]
        if _canonical(name) in self._names:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or (self._any_address and not address.is_unspecified)


def _canonical(name: str) -> str:
    return name.lower().removesuffix(".")


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
