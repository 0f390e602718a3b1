"""Tests the start and end of the HTTP port, and its limits."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from rollcast.server_tls import ServerSecurity

from learner.service.identity.access import Access
from learner.service.identity.setup import Identity
from learner.service.web.routes import SCRAPE_SECONDS
from learner.service.web.server import require_free_http
from learner.shared.exits import ExitCode, UserError
from tests.e2e.processes import wait_until
from tests.learner.service.identity.certificates import Folder
from tests.learner.service.web.site import OPERATOR, SECONDS, Site, serving
from tests.learner.service.web.test_identity import ask


def connect(site: Site) -> socket.socket:
    """Opens a connection and says nothing."""
    return socket.create_connection(("127.0.0.1", site.port), SECONDS)


def everything(connection: socket.socket) -> bytes:
    """Reads until the other side hangs up."""
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def test_a_taken_port_that_was_asked_for() -> None:
    """A requested port that is taken is an error that names it, also in the check before a start."""
    with serving() as first:
        address = first.server.address
        with pytest.raises(UserError, match=address) as caught, serving(address=address):
            pass
        assert caught.value.exit_code is ExitCode.PORT_IN_USE
        assert "rollcast.http_address" in caught.value.message
        with pytest.raises(UserError, match=address):
            require_free_http(address)
    require_free_http(address)


def test_a_taken_port_that_nobody_asked_for() -> None:
    """A default port that is taken is replaced, and the new one is shown."""
    with serving() as first, serving(address=first.server.address, falls_back=True) as second:
        assert second.port not in {0, first.port}
        assert second.ask("/healthz").status == 200
        assert second.url == f"http://{second.server.address}/"


def test_who_reads_nothing_does_not_hold_the_port() -> None:
    """A closed connection whose client does not read counts until it is gone, and can be replaced."""
    request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with serving(max_connections=4, idle_seconds=0.3) as site, ExitStack() as stack:
        present, sent = open_files(), 0
        for _ in range(3):
            clients = []
            for _ in range(4):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.settimeout(SECONDS)
                client.connect(("127.0.0.1", site.port))
                clients.append(client)
                with suppress(OSError):  # the server has closed it, or does not take it
                    while not any(each.get_write_buffer_size() for each in transports_of(site, client)):
                        client.send(request)
                        sent += 1
                        while not is_answered(site, sent):
                            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), site.loop).result(SECONDS)
            held = [transport for each in clients for transport in transports_of(site, each)]
            wait_until(lambda held=held: all(each.is_closing() for each in held), "the server closes them")  # type: ignore[misc]
        wait_until(lambda: open_files() - present - 12 <= 4, "the server has closed the others")
        assert site.ask("/healthz").status == 200


def open_files() -> int:
    """Returns how many descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


def is_answered(site: Site, number: int) -> bool:
    """Returns whether so many requests have been answered."""
    assert site.server._runner is not None
    assert site.server._runner.server is not None
    server = site.server._runner.server
    return server.requests_count >= number and all(each._current_request is None for each in server.connections)


def transports_of(site: Site, client: socket.socket) -> list[asyncio.WriteTransport]:
    """Returns the server's side of a client's connection, unless it has gone."""
    assert site.server._runner is not None
    assert site.server._runner.server is not None
    found = [connection.transport for connection in site.server._runner.server.connections]
    return [
        transport
        for transport in found
        if isinstance(transport, asyncio.WriteTransport)
        and transport.get_extra_info("peername") == client.getsockname()
    ]


def test_it_stops_with_open_connections() -> None:
    """The port stops with open connections."""
    with serving() as site:
        idle = connect(site)
        asking = connect(site)
        asking.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asking.recv(12) == b"HTTP/1.1 200"
    with idle, asking:
        assert everything(idle) == b""
    with pytest.raises(OSError, match="refused"):
        connect(site)


def test_an_open_page_has_a_last_look() -> None:
    """A page that polled recently gets a last response; others are not awaited."""
    with serving() as site:
        farewell = asyncio.run_coroutine_threadsafe(site.server.farewell(), site.loop)
        farewell.result(SECONDS)
        assert site.hooks.views == 0
        site.ask("/api/status")
        farewell = asyncio.run_coroutine_threadsafe(site.server.farewell(), site.loop)
        while not farewell.done():
            site.ask("/api/status")
        assert site.hooks.views >= 2, "the last look is a fresh one"


def test_prometheus_learns_that_a_run_is_over() -> None:
    """The end of a run waits for another scrape if there were two, the end of a start that continues for none."""
    with serving() as site:
        for _ in range(2):
            asyncio.run_coroutine_threadsafe(site.server.farewell(is_over=True), site.loop).result(SECONDS)
            site.ask("/metrics")
        assert site.server._routes is not None
        site.server._routes._scraper.interval_seconds = SCRAPE_SECONDS
        asyncio.run_coroutine_threadsafe(site.server.farewell(), site.loop).result(SECONDS)
        farewell = asyncio.run_coroutine_threadsafe(site.server.farewell(is_over=True), site.loop)
        while not farewell.done():
            site.ask("/metrics")
        assert site.hooks.scrapes >= 3, "the last look is a fresh one"


def test_a_page_that_was_closed_keeps_nobody_waiting() -> None:
    """The wait for a last poll has a timeout."""
    with serving() as site:
        site.ask("/api/status")
        asyncio.run_coroutine_threadsafe(site.server.farewell(), site.loop).result(SECONDS)
        assert site.hooks.views == 1


def test_more_connections_than_there_may_be() -> None:
    """While all that there may be are being answered, another one is refused."""
    with serving(max_connections=1) as site:
        site.hooks.go_on = threading.Event()
        asking = threading.Thread(target=site.ask, args=("/api/pause", "POST", OPERATOR))
        asking.start()
        assert site.hooks.entered.wait(SECONDS)
        with connect(site) as late:
            said = everything(late)
        site.hooks.go_on.set()
        asking.join()
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b"TOO_MANY_CONNECTIONS" in said


def greeted(folder: Folder, site: Site) -> socket.socket:
    """Opens a connection, makes the handshake, and says nothing."""
    context = ssl.create_default_context(cafile=str(folder.ca))
    return context.wrap_socket(connect(site), server_hostname="localhost")


def asked(folder: Folder, site: Site) -> socket.socket:
    """Opens a connection that asks once without a token, and stays."""
    found = greeted(folder, site)
    found.sendall(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert found.recv(12) == b"HTTP/1.1 401"
    return found


def begun(folder: Folder, site: Site) -> socket.socket:
    """Opens a connection that sends part of a request."""
    found = greeted(folder, site)
    found.sendall(b"GET / HTTP/1.1\r\nX: ")
    return found


def half(_: Folder, site: Site) -> socket.socket:
    """Opens a connection that begins a handshake."""
    found = connect(site)
    found.sendall(b"\x16\x03\x01\x02\x00\x01")
    return found


@pytest.mark.parametrize("kind", [lambda _, site: connect(site), half, greeted, begun, asked])
def test_idle_connections_do_not_hold_a_port_with_tls(
    tmp_path: Path, kind: Callable[[Folder, Site], socket.socket]
) -> None:
    """Whatever their state, at the limit the one that has waited longest goes, and the health check is answered at once."""
    folder = Folder.make(tmp_path)
    identity = Identity(Access(folder.path / "tokens"), ServerSecurity(*folder.server))
    with serving(identity=identity, max_connections=8) as site, ExitStack() as stack:
        for _ in range(3):
            for _ in range(8):
                stack.enter_context(kind(folder, site))
            assert ask(folder, site, "/healthz").status == 200
        assert site.server._connections is not None
        assert len(site.server._connections._waits_since) <= 8


@pytest.mark.parametrize("is_first", [True, False])
def test_who_trickles_does_not_hold_the_port(is_first: bool) -> None:
    """At the limit, the connection that has waited longest is closed."""
    with serving(max_connections=3) as site, ExitStack() as stack:
        held = [stack.enter_context(connect(site)) for _ in range(3)]
        for connection in held:
            if not is_first:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        deadline = time.monotonic() + SECONDS
        while site.ask("/healthz").status != 200:
            assert time.monotonic() < deadline
            for connection in held:
                connection.sendall(b"T")
        with suppress(ConnectionResetError):
            assert b"HTTP/1.1 4" not in everything(held[0])
        held[2].setblocking(False)
        with pytest.raises(BlockingIOError):  # it is still there, and nothing was said to it
            held[2].recv(1)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
def test_who_does_not_ask_is_not_waited_for(said: bytes) -> None:
    """A connection without a whole request is closed after a timeout."""
    with serving(idle_seconds=0.3) as site, connect(site) as connection:
        connection.sendall(said)
        assert everything(connection) == b""


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10000 + b"\r\n\r\n",
        b"GET /" + b"x" * 10000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X%d: 1\r\n" % n for n in range(100)) + b"\r\n",
        b"POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_request(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """An invalid or oversized request is a 400 and closes the connection without a log line."""
    caplog.set_level(logging.DEBUG)
    with serving() as site:
        with connect(site) as connection:
            connection.sendall(said)
            answer = everything(connection)
        assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
        assert b"Traceback" not in answer
        assert b"x" * 5000 not in answer
        assert site.ask("/healthz").status == 200
    assert "aiohttp" not in caplog.text
