"""Serves clients that speak WebSocket or HTTP, and the page on which a browser is one.

A client of WebSocket has a conversation for as long as its connection. One of HTTP posts each message to the name that it has
drawn for its session; see `rollcast/v1/client.proto`.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import structlog
from aiohttp import WSCloseCode, WSMessage, WSMsgType, hdrs, web
from rollcast.addresses import join_address, listen_on, split_address
from rollcast.http_connections import Connection, Connections
from rollcast.http_hosts import AllowedHosts
from rollcast.text import printable
from rollcast.throttle import Throttle
from rollcast.v1.client_pb2 import PlayResponse

from actor_client.clients.conversation import Conversation
from actor_client.clients.doors import DoorSettings, cannot_listen
from actor_client.clients.gateway import Gateway
from actor_client.clients.messages import BadClientData
from actor_client.clients.web.forms import FORMS, Form
from actor_client.clients.web.rules import (
    Origins,
    Refused,
    answer,
    form_of,
    make_guard,
    marked,
    without_expectations,
)
from actor_client.clients.web.sessions import ENDED, HUNG_UP, SESSION_FORM, Sessions, silent_for

IDLE_SECONDS: Final = 60.0
"""Seconds without a message after which a client that posts counts as gone."""
SILENT_SECONDS: Final = 600.0
"""The same for a client of WebSocket, whose side answers pings: it may be at a breakpoint."""
PING_SECONDS: Final = 20.0
"""Seconds between two pings; half of them later a client that has not answered counts as gone."""
REQUEST_SECONDS: Final = 30.0
"""Seconds in which the body of a request comes."""
STOP_SECONDS: Final = 1.0
MAX_LINE_BYTES: Final = 4096
MAX_HEADERS: Final = 64
PAGE: Final = {"/": ("index.html", "text/html"), "/cartpole.js": ("cartpole.js", "text/javascript")}
_RECEIVED_SHARE: Final = 2
"""Frames of up to so many times the limit are read, so that the refusal can be explained."""
_MAX_REASON_BYTES: Final = 123
"""Most bytes of the reason in a closing frame."""
_CLOSED: Final = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})

log = structlog.get_logger(__name__)


class WebDoor:
    """Listens for clients of WebSocket and HTTP.

    Args:
        address: ``host:port``; port 0 takes any free port.
        settings: What it has in common with other doors.
        origins: Origins of pages of other servers that may be clients.
        hosts: Further host names that requests may be for.
        idle_seconds: See `IDLE_SECONDS`.
        silent_seconds: See `SILENT_SECONDS`.
        ping_seconds: See `PING_SECONDS`.
        request_seconds: See `REQUEST_SECONDS`.
    """

    def __init__(
        self,
        address: str,
        settings: DoorSettings,
        *,
        origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        idle_seconds: float = IDLE_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        ping_seconds: float = PING_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._address = address
        self._settings = settings
        self._hosts = AllowedHosts(address, hosts, setting="--allow-host")
        self._origins = Origins(origins)
        self._idle_seconds = idle_seconds
        self._silent_seconds = silent_seconds
        self._ping_seconds = ping_seconds
        self._request_seconds = request_seconds
        self._notices = Throttle()
        self._gateway: Gateway
        self._sessions: Sessions
        self._talks: dict[asyncio.Task[None], web.WebSocketResponse] = {}
        self._connections: Connections | None = None
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def open(self, gateway: Gateway) -> str:
        """Begins to listen, in the gateway's event loop; returns the address, ``host:port``.

        Raises:
            ActorError: The address cannot be used (PORT_IN_USE).
        """
        try:
            listening = listen_on(self._address)
        except OSError:
            raise cannot_listen(self._address, "--web") from None
        self._gateway = gateway
        self._sessions = Sessions(self._idle_seconds)
        security = self._settings.security
        context = None if security is None else security.http_context(require_certificate=False)
        self._connections = connections = Connections(self._settings.max_connections, context)
        self._runner = web.AppRunner(
            self._app(connections),
            handler_cancellation=True,
            access_log=None,
            logger=_silent(),
            keepalive_timeout=max(self._request_seconds, self._idle_seconds),
            lingering_time=STOP_SECONDS,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
            shutdown_timeout=STOP_SECONDS,
        )
        await self._runner.setup()
        server = self._runner.server
        if server is None:
            raise RuntimeError("aiohttp created no server")
        server.request_handler = without_expectations(server.request_handler)

        def connect() -> Connection:
            if security is not None:
                security.poll()
            return Connection(connections, server)

        self._server = await asyncio.get_running_loop().create_server(connect, sock=listening)
        return join_address(split_address(self._address)[0], listening.getsockname()[1])

    async def close(self) -> None:
        """Stops listening; last answers may still be sent for a moment. No effect before `open`, or twice."""
        server, self._server = self._server, None
        runner, self._runner = self._runner, None
        if server is not None:
            server.close()
            await asyncio.gather(self._sessions.close(STOP_SECONDS), self._dismiss())
        if runner is not None:
            await runner.cleanup()
        if self._connections is not None:
            self._connections.close()  # also those amid a handshake

    async def _dismiss(self) -> None:
        """Waits a moment until the clients of ended conversations have their last answer, and closes their sockets."""
        if self._talks:
            await asyncio.wait(self._talks, timeout=STOP_SECONDS)
        going = WSCloseCode.GOING_AWAY
        await asyncio.gather(*(socket.close(code=going, message=ENDED.encode()) for socket in self._talks.values()))

    def _app(self, connections: Connections) -> web.Application:
        most = self._settings.max_message_bytes
        guard = make_guard(self._hosts, self._origins, most, self._note_refusal)
        app = web.Application(middlewares=[marked(connections), guard], client_max_size=most)
        app.router.add_get("/v1/play", self._socket, allow_head=False)
        app.router.add_post("/v1/play/{session}", self._post)
        app.router.add_delete("/v1/play/{session}", self._delete)
        folder = Path(__file__).parent / "page"
        for path, (file, kind) in PAGE.items():
            app.router.add_get(path, _file((folder / file).read_bytes(), kind))
        return app

    def _note_refusal(self, peer: str, reason: str) -> None:
        """Counts a request that was refused, and warns of it: a page cannot see why its WebSocket does not open."""
        self._gateway.counts.refused += 1
        if (left_out := self._notices.admit("refused")) is not None:
            log.warning("client_refused", transport="http", peer=peer, reason=printable(reason), left_out=left_out)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """Answers a client for as long as its connection."""
        form = _chosen(request)
        socket = web.WebSocketResponse(
            protocols=(form.subprotocol,),
            heartbeat=self._ping_seconds,
            max_msg_size=_RECEIVED_SHARE * self._settings.max_message_bytes,
            compress=False,
            timeout=STOP_SECONDS,
        )
        if not socket.can_prepare(request):
            raise Refused(426, "/v1/play is for WebSocket; post messages to /v1/play/SESSION")
        conversation = self._gateway.accept("websocket", _peer(request))
        try:
            await socket.prepare(request)
            talk = asyncio.create_task(self._talk(socket, form, conversation))
            self._talks[talk] = socket
            talk.add_done_callback(self._talks.pop)
            await talk
        finally:
            conversation.leave(HUNG_UP)
        await socket.close(message=conversation.goodbye.encode("ascii", "replace")[:_MAX_REASON_BYTES])
        return socket

    async def _talk(self, socket: web.WebSocketResponse, form: Form, conversation: Conversation) -> None:
        """Answers a client until it leaves or the conversation is over."""
        coming = asyncio.create_task(socket.receive())

        def hang_up() -> None:
            coming.cancel()

        conversation.hang_up = hang_up
        try:
            if conversation.is_over:
                await _send(socket, form, PlayResponse(goodbye=conversation.goodbye))
                return
            while True:
                await asyncio.wait([coming], timeout=self._silent_seconds)
                if not coming.done():
                    conversation.leave(silent_for(self._silent_seconds))
                    return
                if _is_end(coming):
                    return
                message = coming.result()
                # Receiving goes on: it answers pings, and tells if the client hangs up before it has its answer.
                coming = asyncio.create_task(socket.receive())
                response = await self._answered(conversation, message, form, coming)
                if response is None:
                    return
                await _send(socket, form, response)
                if response.goodbye:
                    return
        except ConnectionError:
            return
        finally:
            coming.cancel()
            await asyncio.wait([coming])

    async def _answered(
        self, conversation: Conversation, message: WSMessage, form: Form, coming: asyncio.Task[WSMessage]
    ) -> PlayResponse | None:
        """Returns the answer to a message; None if the client hung up before."""
        try:
            request = form.read(_content(message, form, self._settings.max_message_bytes))
        except BadClientData as error:
            return conversation.refuse(str(error))
        exchange = asyncio.create_task(conversation.exchange(request))
        try:
            await asyncio.wait([exchange, coming], return_when=asyncio.FIRST_COMPLETED)
            if not exchange.done() and _is_end(coming):
                return None
            return await exchange
        finally:
            exchange.cancel()

    async def _post(self, request: web.Request) -> web.Response:
        """Answers a client's message."""
        name = _session(request)
        form = form_of(request)
        if form is None:
            kinds = " or ".join(each.content_type for each in FORMS)
            raise Refused(415, f"a message has the Content-Type {kinds}")
        try:
            async with asyncio.timeout(self._request_seconds):
                body = await request.read()
        except TimeoutError:
            raise Refused(408, f"the message did not come within {self._request_seconds:g} s") from None
        try:
            message = form.read(body)
        except BadClientData as error:
            return answer(form, self._sessions.refuse(name, str(error)), 400)
        accept = self._gateway.accept
        return answer(form, await self._sessions.play(name, message, lambda: accept("http", _peer(request))))

    async def _delete(self, request: web.Request) -> web.Response:
        """Ends a client's session; one that has ended already is no fault."""
        self._sessions.leave(_session(request), "it said so")
        return web.Response(status=204)


async def _send(socket: web.WebSocketResponse, form: Form, response: PlayResponse) -> None:
    """Sends an answer in the client's form."""
    content = form.write(response)
    await (socket.send_str(content) if isinstance(content, str) else socket.send_bytes(content))


def _is_end(coming: asyncio.Task[WSMessage]) -> bool:
    """Returns whether what came is the end of the connection."""
    return coming.cancelled() or coming.result().type in _CLOSED


def _chosen(request: web.Request) -> Form:
    """Returns the form of the first known subprotocol that a client names.

    Raises:
        Refused: It names none.
    """
    named = ",".join(request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, []))
    known = {form.subprotocol: form for form in FORMS}
    for name in named.split(","):
        if (form := known.get(name.strip())) is not None:
            return form
    raise Refused(400, f"/v1/play takes WebSockets of the subprotocols {' and '.join(known)}; name one")


def _content(message: WSMessage, form: Form, most: int) -> str | bytes:
    """Returns the content of a frame.

    Raises:
        BadClientData: It is of the wrong kind, or too large.
    """
    if message.type is not (WSMsgType.TEXT if form.is_text else WSMsgType.BINARY):
        wanted = "text" if form.is_text else "binary"
        raise BadClientData(f"the subprotocol {form.subprotocol} has {wanted} frames; send one")
    content: str | bytes = message.data
    size = len(content) if isinstance(content, bytes) or len(content) > most else len(content.encode())
    if size > most:
        raise BadClientData(
            f"a message of {size} bytes is over {most} (--max-message-bytes); send fewer agents in each"
        )
    return content


def _session(request: web.Request) -> str:
    """Returns the name of the session of a request.

    Raises:
        Refused: It has another form.
    """
    name = request.match_info["session"]
    if SESSION_FORM.fullmatch(name) is None:
        raise Refused(400, "a session's name has 16 to 64 letters, digits, '-' and '_'; draw it at random")
    return name


def _peer(request: web.Request) -> str:
    return request.remote or ""


def _file(content: bytes, kind: str) -> web._Handler:  # type: ignore[name-defined]
    async def send(_: web.Request) -> web.Response:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return send


def _silent() -> logging.Logger:
    """Returns a logger without output: strangers must not fill the log."""
    quiet = logging.Logger("aiohttp")  # noqa: LOG001 - of its own, on purpose
    quiet.addHandler(logging.NullHandler())
    return quiet
