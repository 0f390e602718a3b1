"""Intercepts calls: refuses callers that are not who they must be before anything of their request is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from rollcast.auth import AUTHORIZATION, Principal, Role, bearer
from rollcast.errors import Unauthenticated, WireError

from learner.service.calls.guard import Context, Handler, rewrapped, run_handler
from learner.service.identity.access import CALLER, Access, require
from learner.service.identity.audit import grpc_address

Needs = Callable[[str], Role | None]
"""Returns the role that a method needs, by its path; None if anyone may call it."""
_ALTERNATIVE_NAMES: Final = "x509_subject_alternative_name"


class IdentityGuard(grpc.aio.ServerInterceptor):
    """Identifies callers by token and certificate. Put it after the interceptor that answers errors.

    The token is checked before the handler is chosen, the certificate in the wrapped handler, which is the first to
    see it. A refused call of any kind gets one handler that reads nothing.

    Args:
        access: The principals.
        needs: The roles that methods need.
        on_accepted: Called with the address of the caller, ``host:port``, of each call that is accepted.
    """

    def __init__(self, access: Access, needs: Needs, on_accepted: Callable[[str], object] = str) -> None:
        self._on_accepted = on_accepted
        self._access = access
        self._needs = needs
        self._streams: set[_Stream] = set()

    def end_revoked(self) -> None:
        """Ends the streams of callers whose token is no longer valid, or has another role."""
        for stream in self._streams:
            if not self._access.is_valid(stream.token, stream.needed):
                stream.revoked.set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler of a call, or replaces it."""
        needed = self._needs(handler_call_details.method)
        handler = await continuation(handler_call_details)
        if needed is None or handler is None:  # none: of another address, which a token would not change
            return handler
        metadata = handler_call_details.invocation_metadata or ()
        token = bearer(value for key, value in metadata if key == AUTHORIZATION)
        try:
            principal = self._access.by_token(token)
            if principal is not None:
                require(principal, needed)
        except WireError as error:
            return _refusal(error)
        return self._wrap(handler, token, principal, needed)

    def _wrap(self, handler: Handler, token: str | None, principal: Principal | None, needed: Role) -> Handler:
        def enter(context: Context) -> None:
            names = context.auth_context().get(_ALTERNATIVE_NAMES, ())
            caller = self._access.agree(principal, [_text(name) for name in names])
            require(caller, needed)
            self._on_accepted(grpc_address(context.peer()))
            CALLER.set(caller)  # each call has a task, and so a context, of its own

        def entered(kind: str, inner: Callable[..., Any]) -> Callable[..., Any]:
            wrap = self._writer if kind.endswith("stream") else _answerer
            return wrap(inner, enter, token, needed)

        return rewrapped(handler, entered)

    def _writer(
        self, inner: Callable[..., Any], enter: Callable[[Context], None], token: str | None, needed: Role
    ) -> Callable[..., Any]:
        async def write(request: Any, context: Context) -> None:
            enter(context)
            stream = _Stream(token, needed)
            self._streams.add(stream)
            work = asyncio.ensure_future(run_handler(inner, request, context))
            revoked = asyncio.ensure_future(stream.revoked.wait())
            try:
                await asyncio.wait({work, revoked}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    raise Unauthenticated(
                        "the token of this stream was revoked, has expired, or lost the stream's role: ask for a new one"
                    )
                work.result()
            finally:
                self._streams.discard(stream)
                revoked.cancel()
                work.cancel()
                await asyncio.wait({work})
                if not work.cancelled():
                    work.exception()  # of a client that left in the same moment: no one else retrieves it

        return write


class _Stream:
    """An open call that writes: its token, the role that it needs, and whether the token was revoked."""

    def __init__(self, token: str | None, needed: Role) -> None:
        self.token = token
        self.needed = needed
        self.revoked = asyncio.Event()


def _answerer(
    inner: Callable[..., Any], enter: Callable[[Context], None], _token: str | None, _needed: Role
) -> Callable[..., Any]:
    async def answer(request: Any, context: Context) -> Any:
        enter(context)
        return await inner(request, context)

    return answer


def _refusal(error: WireError) -> Handler:
    async def refuse(_requests: Any, _context: Context) -> None:
        raise error

    return grpc.stream_stream_rpc_method_handler(refuse)


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
