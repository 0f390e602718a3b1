"""What every request to the web door must meet: its host, its origin and its size; and how it is refused."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from rollcast.http_connections import Connections
from rollcast.http_hosts import AllowedHosts
from rollcast.v1.client_pb2 import PlayResponse

from actor_client.clients.web.forms import FORMS, JSON, Form

PREFLIGHT_SECONDS: Final = 600
"""Seconds for which a browser need not ask again whether its page may post."""
METHODS: Final = "POST, DELETE"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self' ws: wss:; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Server": "rollcast",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

ServerHandler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
log = structlog.get_logger(__name__)


class Refused(Exception):  # noqa: N818 - it says what happened
    """Raised if a request is answered with an error.

    Args:
        status: HTTP status.
        message: One line for people.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def answer(form: Form, response: PlayResponse, status: int = 200) -> web.Response:
    """Returns the answer of a gateway as one of HTTP."""
    content = form.write(response)
    body = content.encode() if isinstance(content, str) else content
    return web.Response(body=body, status=status, content_type=form.content_type)


def form_of(request: web.Request) -> Form | None:
    """Returns the form of the content of a request; None for another one."""
    return next((form for form in FORMS if form.content_type == request.content_type), None)


class Origins:
    """The origins whose pages may use the door: its own, and those that the user has named.

    A browser names the origin of the page in every request that could act, and no page can change it. Clients that are no
    pages name none.

    Args:
        allowed: Origins as browsers name them, such as ``https://play.example:8443``.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(each.lower() for each in allowed)

    def foreign(self, request: web.Request) -> str | None:
        """Returns the allowed origin of a page of another server; None for own pages and for clients that are none.

        Raises:
            Refused: The origin is not allowed.
        """
        named = request.headers.getall(hdrs.ORIGIN, [])
        if not named or named == [f"{request.scheme}://{request.host}"]:
            return None
        if len(named) == 1 and named[0].lower() in self._allowed:
            return named[0]
        raise Refused(403, "this gateway takes no pages of this origin: start it with --allow-origin ORIGIN")


def make_guard(
    hosts: AllowedHosts, origins: Origins, max_body_bytes: int, on_refusal: Callable[[str, str], object]
) -> Middleware:
    """Returns the middleware that refuses what must not be answered, and turns errors into one line.

    Args:
        hosts: The hosts that requests may be for.
        origins: The origins whose pages may ask.
        max_body_bytes: Most bytes of a body.
        on_refusal: Called with the client's address and the reason.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = None
        try:
            if not hosts.allow(request.headers.getall(hdrs.HOST, [])):
                raise Refused(403, hosts.refusal)
            origin = origins.foreign(request)
            _check_body(request, max_body_bytes)
            response = _preflight() if request.method == hdrs.METH_OPTIONS and origin else await handler(request)
        except Exception as error:  # noqa: BLE001 - the last one who can; nothing is swallowed
            response = _answer_for(error, request)
            on_refusal(request.remote or "", str(error))
        if response.prepared:  # a WebSocket
            return response
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers[hdrs.VARY] = hdrs.ORIGIN
        if origin:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
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
    """Returns a handler that refuses every ``Expect`` header but ``100-continue``, which aiohttp answers in its own way."""

    async def refuse_or_handle(request: web.BaseRequest) -> web.StreamResponse:
        expected = request.headers.getall(hdrs.EXPECT, [])
        if all(each.lower() == "100-continue" for each in expected):
            return await handler(request)
        return _refusal(417, "a request can expect nothing but 100-continue; leave the header Expect out")

    return refuse_or_handle


def _check_body(request: web.Request, most: int) -> None:
    if request.content_length is None and request.can_read_body:
        raise Refused(411, "a request with a body must have a Content-Length")
    if (request.content_length or 0) > most:
        raise Refused(413, f"a message can have at most {most} bytes (--max-message-bytes): send fewer agents in each")


def _preflight() -> web.Response:
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: hdrs.CONTENT_TYPE,
        hdrs.ACCESS_CONTROL_MAX_AGE: str(PREFLIGHT_SECONDS),
        "Access-Control-Allow-Private-Network": "true",
    }
    return web.Response(status=204, headers=headers)


def _answer_for(error: Exception, request: web.Request) -> web.Response:
    form = form_of(request) or JSON
    if isinstance(error, Refused):
        return _refusal(error.status, error.message, form)
    if isinstance(error, web.HTTPNotFound):
        return _refusal(404, "there are /v1/play, for WebSocket, and /v1/play/SESSION, for POST and DELETE", form)
    if isinstance(error, web.HTTPException):
        refusal = _refusal(error.status, error.reason, form)
        if hdrs.ALLOW in error.headers:
            refusal.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        return refusal
    incident = secrets.token_hex(6)
    log.error("web_request_failed", incident=incident, exc_info=error)
    return _refusal(500, f"an unexpected error occurred; the gateway's log describes it as incident {incident}", form)


def _refusal(status: int, message: str, form: Form = JSON) -> web.Response:
    return answer(form, PlayResponse(goodbye=message), status)
