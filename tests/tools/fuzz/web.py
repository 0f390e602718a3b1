"""Requests to the HTTP port, from its parser to the answer, on a connection of this process."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import socket
import struct
import tempfile
from pathlib import Path
from typing import Final

from rollcast.auth import token_hash

from learner.service.identity.access import Access
from learner.service.identity.setup import Identity
from learner.service.web.operator_token import OperatorToken
from learner.service.web.server import WebServer
from tests.learner.service.web.site import TOKEN, Hooks
from tests.tools.fuzz.target import Target

VIEWER: Final = "a-token-of-a-viewer-alone"
STATUSES: Final = frozenset({100, 200, 400, 401, 403, 404, 405, 409, 411, 413, 417, 431, 503, 504})
"""Statuses of documented answers; 500 is a finding."""
PATIENCE: Final = 20_000
"""Most turns of the loop for one input; a request takes a few."""
IDLE_TURNS: Final = 8
"""Turns without a request after which the port waits for more bytes, as after a part of a request."""


class Site:
    """A port that is given its connections, so that it is known when an input is done."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.hooks = Hooks()
        with tempfile.NamedTemporaryFile("w", suffix="tokens") as tokens:
            tokens.write(f"eye viewer {token_hash(VIEWER)}\n")
            tokens.flush()
            access = Access(Path(tokens.name))
        self.server = WebServer(
            self.hooks, address="127.0.0.1:0", token=OperatorToken(TOKEN), identity=Identity(access=access)
        )
        self.loop.run_until_complete(self.server.start())
        self._listening = socket.create_server(("127.0.0.1", 0))
        atexit.register(self.close)

    def close(self) -> None:
        """Stops the port."""
        self._listening.close()
        self.loop.run_until_complete(self.server.stop())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def exchange(self, data: bytes) -> bytes:
        """Returns what the port answers to bytes."""
        runner = self.server._runner
        assert runner is not None
        assert runner.server is not None
        before = asyncio.all_tasks()
        protocol = runner.server()
        ours, theirs = self._connection()
        try:
            transport, _ = await self.loop.connect_accepted_socket(lambda: protocol, theirs)
            await asyncio.sleep(0)
            protocol.data_received(data)
            turns, idle_turns = 0, 0
            while not transport.is_closing() and idle_turns < IDLE_TURNS:
                await asyncio.sleep(0.0002 if protocol._request_in_progress else 0)
                idle_turns = 0 if protocol._request_in_progress else idle_turns + 1
                turns += 1
                assert turns < PATIENCE, "the port does not come to rest"
            transport.abort()
            # A request is carried out even if its connection has ended: not during the next input.
            if left := asyncio.all_tasks() - before:
                for task in left:
                    task.cancel()
                await asyncio.wait(left)
            return self._received(ours)
        finally:
            ours.close()

    def _connection(self) -> tuple[socket.socket, socket.socket]:
        """Returns both ends of a connection on loopback, which leaves no port in use when it is closed."""
        ours = socket.create_connection(self._listening.getsockname())
        theirs, _ = self._listening.accept()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.setblocking(False)
        theirs.setblocking(False)
        return ours, theirs

    @staticmethod
    def _received(ours: socket.socket) -> bytes:
        found = b""
        try:
            while part := ours.recv(1 << 16):
                found += part
        except (BlockingIOError, ConnectionError):
            pass
        return found


@functools.cache
def _site() -> Site:
    return Site()


def _request(data: bytes) -> None:
    """Sends bytes to the port: every answer is documented, and nothing is done without the operator's token."""
    site = _site()
    site.hooks.calls.clear()
    answer = site.loop.run_until_complete(site.exchange(data))
    assert TOKEN.encode() in data or not site.hooks.calls, site.hooks.calls
    assert b"Traceback" not in answer
    while answer.startswith(b"HTTP/1."):
        head, _, rest = answer.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        status = int(lines[0].split()[1])
        assert status in STATUSES, lines[0]
        fields = dict(line.lower().split(b": ", 1) for line in lines[1:] if b": " in line)
        size = int(fields.get(b"content-length", b"0"))
        if status >= 400 and fields.get(b"content-type", b"").startswith(b"application/json") and len(rest) >= size > 0:
            assert json.loads(rest[:size])["error"]["reason"]
        answer = rest[size:]


def _requests() -> dict[str, bytes]:
    viewer, operator = f"Authorization: Bearer {VIEWER}", f"Authorization: Bearer {TOKEN}"
    lines = {
        "page": ("GET / HTTP/1.1", "Host: localhost"),
        "metrics": ("GET /metrics HTTP/1.1", "Host: 127.0.0.1:9464", viewer),
        "status": ("GET /api/status HTTP/1.1", "Host: [::1]", viewer),
        "history": ("GET /api/history?behavior=CartPole&since=12.5 HTTP/1.1", "Host: localhost", viewer),
        "health": ("GET /healthz HTTP/1.0", "Host: localhost", "Connection: keep-alive"),
        "pause": ("POST /api/pause HTTP/1.1", "Host: localhost", operator, "Content-Length: 0"),
        "checkpoint": ("POST /api/checkpoint HTTP/1.1", "Host: localhost", operator, "Content-Length: 2"),
        "drain": ("POST /api/drain?final=0 HTTP/1.1", "Host: localhost", operator, "Content-Length: 0"),
        "prove": (f"POST /api/prove?nonce={'00' * 32}&claim={'ff' * 32} HTTP/1.1", "Host: localhost", viewer),
        "refused": ("POST /api/resume HTTP/1.1", "Host: localhost", viewer, "Transfer-Encoding: chunked"),
        "upgrade": ("GET /api/status HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Expect: 100-continue"),
    }
    found = {name: ("\r\n".join(each) + "\r\n\r\n").encode() for name, each in lines.items()}
    return {**found, "pipelined": found["health"] + found["history"], "checkpoint": found["checkpoint"] + b"{}"}


_WORDS: Final = (
    b"Authorization: Bearer ",
    TOKEN.encode(),
    VIEWER.encode(),
    b"Host: ",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked",
    b"/api/history?behavior=CartPole&since=",
    b"/api/prove?nonce=00&claim=",
    b"/api/release?actor=",
    b"/api/set?learning_rate=1e-4&",
    b"/api/undo",
    b"\r\n\r\n",
)

TARGETS = (Target("http", _request, (), _requests, words=_WORDS),)
