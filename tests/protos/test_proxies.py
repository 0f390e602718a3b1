"""Tests which proxy a connection takes, and connections through a real one."""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import suppress

import grpc
import pytest
from rollcast.channels import channel_options
from rollcast.proxies import proxy_of, proxy_words, spare_loopback
from rollcast.tls import ClientSecurity
from rollcast.v1 import session_pb2, session_pb2_grpc

from tests.protos.serving import Context, serving
from tests.tcp_proxy import TcpProxy

FAR = "203.0.113.5"  # an address of documents, which nothing has
DEAD = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY", "grpc_proxy", "all_proxy"), "http://127.0.0.1:9")


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "10.1.2.3", "172.31.0.1", "192.168.0.9"),  # noqa: S104
        *("169.254.1.1", "fe80::1%eth0", "fd00::7", "::ffff:10.0.0.1", "100.101.102.103"),
        *(
            "learner",
            "gpu-box",
            "gpu.lan",
            "learner.rollcast.svc.cluster.local",
            "a.internal",
            "me.localhost",
            "Gpu.Local.",
        ),
    ],
)
def test_private_hosts_have_no_proxy(host: str) -> None:
    """Hosts of this machine, of private and link-local networks, and names that only a private network knows, are dialed directly."""
    assert proxy_of(host, tls=False, variables=DEAD) is None
    assert proxy_of(host, tls=True, variables=DEAD) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7"])
def test_a_name_of_a_private_address_has_no_proxy(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public name may lead to a machine beside this one; a name that nobody here can resolve goes to the proxy."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert proxy_of("learner.example.com", tls=True, variables=DEAD) is None
    found.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", (FAR, 0)))
    assert proxy_of("learner.example.com", tls=True, variables=DEAD) is not None

    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert proxy_of("learner.example.com", tls=True, variables=DEAD) is not None


@pytest.mark.parametrize(
    ("variables", "plain", "tls"),
    [
        ({}, "", ""),
        ({"http_proxy": "http://a:1"}, "http_proxy", ""),
        ({"HTTP_PROXY": "http://a:1"}, "", ""),
        ({"https_proxy": "http://a:1"}, "", "https_proxy"),
        ({"HTTPS_PROXY": "http://a:1"}, "", "HTTPS_PROXY"),
        ({"ALL_PROXY": "http://a:1", "https_proxy": "http://b:1"}, "ALL_PROXY", "https_proxy"),
        ({"all_proxy": "http://a:1", "http_proxy": ""}, "", "all_proxy"),
        ({"grpc_proxy": "http://a:1", "http_proxy": "http://b:1"}, "grpc_proxy", "grpc_proxy"),
        ({"all_proxy": "http://a:1", "no_proxy": "*"}, "", ""),
        ({"all_proxy": "http://a:1", "no_proxy": "x.org, 203.0.113.0/24"}, "", ""),
        ({"all_proxy": "http://a:1", "NO_PROXY": FAR}, "", ""),
        ({"all_proxy": "http://a:1", "no_proxy": "203.0.113.6 example.com"}, "all_proxy", "all_proxy"),
    ],
)
def test_variables_mean_what_they_mean_to_curl(variables: dict[str, str], plain: str, tls: str) -> None:
    """The proxy is that of curl, and before it gRPC's own variable."""
    for name, is_tls in ((plain, False), (tls, True)):
        found = proxy_of(FAR, tls=is_tls, variables=variables)
        assert (found.variable if found is not None else "") == name


@pytest.mark.parametrize(
    ("host", "entry", "spared"),
    [
        ("a.example.com", "example.com", True),
        ("a.example.com", ".example.com", True),
        ("EXAMPLE.com", "example.com", True),
        ("notexample.com", "example.com", False),
        ("2001:db8::1", "2001:db8::/32", True),
        ("2001:db8::1", "[2001:db8::1]", True),
        ("203.0.113.5", "113.5", False),
    ],
)
def test_exceptions(host: str, entry: str, spared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`no_proxy` lists domains with their subdomains, addresses and networks."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (FAR, 0))])
    assert (proxy_of(host, tls=True, variables=DEAD | {"no_proxy": entry}) is None) == spared


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "http://me:secret@proxy.example:3128/",
            "goes through the proxy proxy.example:3128 of all_proxy: check it, or",
        ),
        ("proxy.example", "goes through the proxy proxy.example:1080 of all_proxy"),
        (
            "socks5h://proxy.example:1080",
            "cannot be used (gRPC has no socks5h proxies, only http), and the connection is direct",
        ),
        ("https://proxy.example", "cannot be used (gRPC has no https proxies"),
        ("http://proxy.example:port", "cannot be used (its address is not valid)"),
        ("http://", "cannot be used (its address has no host)"),
    ],
)
def test_words_about_a_proxy(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message names the proxy, its variable and what to do, and never the password."""
    for name in {*DEAD, "ALL_PROXY", "no_proxy", "NO_PROXY"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("all_proxy", url)
    said = proxy_words(f"{FAR}:50051", tls=False)
    assert words in said
    assert "secret" not in said
    assert proxy_words("127.0.0.1:50051", tls=False) == ""


def test_players_connect_to_this_machine_directly() -> None:
    """Exceptions that are there stay, and gRPC's own list, which has precedence, gets the same ones."""
    variables = {"no_proxy": "example.com", "no_grpc_proxy": "a.org"}
    spare_loopback(variables)
    assert variables == {
        "no_proxy": "example.com,localhost,127.0.0.1,::1",
        "NO_PROXY": "localhost,127.0.0.1,::1",
        "no_grpc_proxy": "a.org,localhost,127.0.0.1,::1",
    }


class Tunnels(TcpProxy):
    """An HTTP proxy whose tunnels all lead to one server.

    Attributes:
        requests: What clients asked for.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.requests: list[str] = []

    def connect(self, client: socket.socket, server: socket.socket) -> None:
        """Opens a tunnel."""
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += client.recv(1)
        self.requests.append(request.decode())
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


async def test_a_learner_far_away_is_reached_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel asks the proxy for the learner's address, with the login of the variable."""

    async def renew(_request: session_pb2.RenewSessionRequest, _context: Context) -> session_pb2.RenewSessionResponse:
        return session_pb2.RenewSessionResponse()

    async with serving(renew) as address:
        host, _, port = address.rpartition(":")
        with Tunnels(host, int(port)) as proxy:
            for name in {*DEAD, "no_proxy", "NO_PROXY"}:
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("http_proxy", f"http://me:se%40cret@{proxy.address}")
            async with ClientSecurity().aio_channel(f"{FAR}:50051", channel_options()) as channel:
                await session_pb2_grpc.SessionServiceStub(channel).RenewSession(
                    session_pb2.RenewSessionRequest(), timeout=30
                )
    assert f"CONNECT {FAR}:50051 HTTP/1.1" in proxy.requests[0]
    assert base64.b64encode(b"me:se@cret").decode() in proxy.requests[0]


async def test_a_proxy_is_no_obstacle_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every variable set to a port that nobody listens on, a learner on this machine answers; so does the probe."""
    for name, url in DEAD.items():
        monkeypatch.setenv(name, url)

    async def renew(_request: session_pb2.RenewSessionRequest, _context: Context) -> session_pb2.RenewSessionResponse:
        return session_pb2.RenewSessionResponse()

    async with serving(renew) as address, ClientSecurity().aio_channel(address, channel_options()) as channel:
        await session_pb2_grpc.SessionServiceStub(channel).RenewSession(session_pb2.RenewSessionRequest(), timeout=30)


def test_a_proxy_that_does_not_answer_is_no_certificate_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe for the cause of a failure takes the way of the connection, and finds no fault of certificates there."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert ClientSecurity().problem(FAR, 50051) == ""
    with (
        ClientSecurity().sync_channel(f"{FAR}:50051", channel_options()) as channel,
        pytest.raises(grpc.RpcError) as raised,
    ):
        session_pb2_grpc.SessionServiceStub(channel).RenewSession(session_pb2.RenewSessionRequest(), timeout=30)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
