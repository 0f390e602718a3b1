"""Tests the ports of games, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actor_client.exits import ActorError, ExitCode
from actor_client.godot import ports as module
from actor_client.godot.messages import ENV_INFO, HANDSHAKE, RESET, encode
from actor_client.godot.ports import MAX_MESSAGE_BYTES, Port, Ports

SECONDS = 60.0
"""Limit of each wait; never reached unless a test fails."""


def framed(body: bytes) -> bytes:
    """Returns a message as it is on the wire."""
    return len(body).to_bytes(4, "little") + body


GREETING = framed(HANDSHAKE) + framed(ENV_INFO)


@contextmanager
def connected() -> Iterator[tuple[Ports, Port, socket.socket]]:
    """Opens a port, and connects to it as a game does."""
    ports = Ports()
    port = ports.open(None)
    try:
        with socket.create_connection(("127.0.0.1", port.number), SECONDS) as game:
            until(ports, lambda: port.is_connected)
            yield ports, port, game
    finally:
        port.close()
        ports.close()


def until(ports: Ports, holds: Callable[[], object]) -> None:
    """Waits for events until something holds."""
    while not holds():
        ports.wait(SECONDS)


def read(game: socket.socket, count: int) -> bytes:
    """Returns so many bytes."""
    found = b""
    while len(found) < count:
        found += game.recv(count - len(found))
    return found


def test_who_connects_is_greeted_and_asked() -> None:
    """Each frame is the length of the text in four bytes, the smallest first, and the text."""
    with connected() as (ports, port, game):
        assert read(game, len(GREETING)) == GREETING
        for piece in (b"\x03", b"\x00\x00\x00a", b"bc"):
            game.sendall(piece)
        until(ports, lambda: port.message is not None)
        assert (port.take(), port.message) == (b"abc", None)
        port.ask(RESET)
        assert read(game, len(framed(RESET))) == framed(RESET)


def test_a_long_message_is_sent_as_the_game_reads_it() -> None:
    """Nothing blocks if a game does not read: the rest is sent when it does."""
    body = encode("action", action=["x" * (8 << 20)])
    with connected() as (ports, port, game):
        game.sendall(framed(b"{}"))
        until(ports, lambda: port.message is not None)
        read(game, len(GREETING))
        port.ask(body)
        wanted, found = framed(body), b""
        game.setblocking(False)
        while len(found) < len(wanted):
            ports.wait(0.0)
            with suppress(BlockingIOError):
                found += game.recv(1 << 20)
        game.setblocking(True)
        assert found == wanted
        game.sendall(framed(b"[]"))
        until(ports, lambda: port.message is not None)
        assert port.take() == b"[]"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xff\xff\xff\xff", f"sent a message of {2**32 - 1} bytes, and 1 to {MAX_MESSAGE_BYTES} are allowed"),
        (b"\x00\x00\x00\x00", "sent a message of 0 bytes"),
        (b"", "closed the connection"),
        (b"\x09\x00\x00\x00half", "closed the connection"),
    ],
)
def test_a_faulty_frame_ends_the_connection(sent: bytes, said: str) -> None:
    """The fault is kept until the port hangs up; then the next game may connect."""
    with connected() as (ports, port, game):
        game.sendall(sent)
        game.shutdown(socket.SHUT_WR)
        until(ports, lambda: port.fault)
        assert port.fault.startswith(said)
        assert not port.is_connected
        with socket.create_connection(("127.0.0.1", port.number), SECONDS) as second:
            ports.wait(0.0)
            assert not port.is_connected
            port.hang_up()
            until(ports, lambda: port.is_connected)
            assert port.fault == ""
            assert read(second, len(GREETING)) == GREETING


def test_a_message_that_was_not_asked_for_ends_the_connection() -> None:
    """A game that floods its port is not read."""
    with connected() as (ports, port, game):
        game.sendall(framed(b"{}") + framed(b"{}"))
        until(ports, lambda: port.message is not None)
        port.take()
        until(ports, lambda: port.fault)
        assert port.fault == "sent a message that was not asked for"


def test_a_process_of_another_user_is_not_greeted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process of the machine can reach the port; the game of this user takes its place."""
    monkeypatch.setattr(module, "users_of_connection", lambda *_: frozenset({-1}))
    ports = Ports()
    port = ports.open(None)
    with closing(ports), closing(port), socket.create_connection(("127.0.0.1", port.number), SECONDS) as stranger:
        ports.wait(SECONDS)
        assert not port.is_connected
        assert stranger.recv(1) == b""
        monkeypatch.undo()
        with socket.create_connection(("127.0.0.1", port.number), SECONDS):
            until(ports, lambda: port.is_connected)


def test_a_port_in_use_is_one_line() -> None:
    """Another trainer that listens is named as a cause."""
    ports = Ports()
    with closing(ports), closing(ports.open(None)) as port:
        with pytest.raises(
            ActorError, match=f"port {port.number} for a game cannot be opened .*gdrl.*--base-port"
        ) as error:
            ports.open(port.number)
        assert error.value.exit_code is ExitCode.PORT_IN_USE


@settings(max_examples=50, deadline=None)
@given(sent=st.binary(max_size=64))
def test_any_bytes_end_in_a_message_or_a_fault(sent: bytes) -> None:
    """Whatever a game sends, nothing is raised."""
    with connected() as (ports, port, game):
        game.sendall(sent)
        game.shutdown(socket.SHUT_WR)
        until(ports, lambda: port.message is not None or port.fault)
