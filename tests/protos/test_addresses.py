"""Tests the form of addresses."""

from __future__ import annotations

import socket

import pytest
from rollcast.addresses import is_everywhere, is_loopback, join_address, reached_here, reuse_address, split_address


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        *(("localhost:1", "localhost", 1), ("[::1]:50051", "::1", 50051), ("learner.lan:65535", "learner.lan", 65535)),
        *(("127.0.0.1:50051", "127.0.0.1", 50051), ("[fe80::1%eth0]:7", "fe80::1%eth0", 7)),
    ],
)
def test_addresses(address: str, host: str, port: int) -> None:
    """An address is a host and a port, with brackets around IPv6."""
    assert split_address(address) == split_address(address, least_port=1) == (host, port)


def test_port_0_is_for_listeners() -> None:
    """Port 0 is any free port of a listener; a client cannot dial it."""
    assert split_address("localhost:0") == ("localhost", 0)
    with pytest.raises(ValueError, match="a port from 1 to 65535"):
        split_address("localhost:0", least_port=1)


@pytest.mark.parametrize(
    "address",
    [
        *("", ":1", "host", "host:", "host:65536", "h:-1", "::1:50051", "a b:1", "a/b:1", "h:٣", "http://h:1"),
        *("a..b:1", ".b:1", "x" * 64 + ":1", "[]:1", "a\0b:1", "\udcff:1"),
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    """Other forms of an address are refused."""
    with pytest.raises(ValueError, match="must "):
        split_address(address)


def test_loopback() -> None:
    """Only hosts that are certainly this machine count as loopback."""
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "192.168.0.1", "learner", "localhost.evil.example"))  # noqa: S104


def test_a_port_in_use_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port in use cannot be taken; SO_REUSEADDR is not set on Windows."""
    asked = []

    class Listening(socket.socket):
        def setsockopt(self, *arguments: object) -> None:
            asked.append(arguments)

    with Listening() as listening:
        reuse_address(listening)
        monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", -5, raising=False)
        reuse_address(listening)
    assert asked == [(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1), (socket.SOL_SOCKET, -5, 1)]


@pytest.mark.parametrize(
    ("host", "joined", "here"),
    [
        ("127.0.0.1", "127.0.0.1:5", "127.0.0.1:5"),
        ("::1", "[::1]:5", "[::1]:5"),
        ("0.0.0.0", "0.0.0.0:5", "127.0.0.1:5"),  # noqa: S104 - not to listen there
        ("::", "[::]:5", "[::1]:5"),
        ("gpu.lan", "gpu.lan:5", "gpu.lan:5"),
    ],
)
def test_an_address_is_shown_and_reached(host: str, joined: str, here: str) -> None:
    """An IPv6 address is in brackets; who listens everywhere is reached at the loopback address."""
    assert join_address(host, 5) == joined
    assert split_address(joined) == (host, 5)
    assert reached_here(joined) == here
    assert is_everywhere(joined) is (here != joined)
