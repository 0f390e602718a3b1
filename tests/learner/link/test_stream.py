"""Tests messages over TCP, in plain text and with TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollcast.server_tls import ServerSecurity

from learner.link.stream import StreamConnection
from tests.learner.service.identity.certificates import Folder

MESSAGE = bytes(range(256)) * 4096
MOST = 2**22


def pair(server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None) -> list[StreamConnection]:
    """Returns both ends of a connection, the server's first, before their handshakes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    name = None if client is None else "localhost"
    return [StreamConnection(far, server), StreamConnection(near, client, name)]


def contexts(folder: Folder) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Returns how the server and its client use TLS."""
    return ServerSecurity(*folder.server).http_context(require_certificate=True), folder.client().context()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[StreamConnection]]:
    """Connects two ends."""
    found = pair(*(contexts(Folder.make(tmp_path / "certs")) if request.param else ()))
    other = threading.Thread(target=found[0].handshake)
    other.start()
    found[1].handshake()
    other.join()
    yield found
    for end in found:
        end.close()


def test_both_sides_send_at_once(ends: list[StreamConnection]) -> None:
    """Each side sends more than the system buffers while the other one does, and everything arrives in order."""
    writers = [
        threading.Thread(target=lambda end=end: [end.send_bytes(MESSAGE[number:]) for number in range(20)])
        for end in ends
    ]
    for writer in writers:
        writer.start()
    got: list[list[bytes]] = [[], []]
    readers = [
        threading.Thread(target=lambda place=place: got[place].extend(ends[place].recv_bytes(MOST) for _ in range(20)))
        for place in range(2)
    ]
    for reader in readers:
        reader.start()
    for thread in (*writers, *readers):
        thread.join(30.0)
    assert got == [[MESSAGE[number:] for number in range(20)]] * 2


def test_an_empty_message_and_the_end(ends: list[StreamConnection]) -> None:
    """An empty message is one, and a closed connection is an end."""
    far, near = ends
    far.send_bytes(b"")
    assert near.recv_bytes(0) == b""
    far.close()
    with pytest.raises(EOFError):
        near.recv_bytes(MOST)


def test_an_end_is_noticed_without_a_wait(ends: list[StreamConnection]) -> None:
    """A connection says nothing until the other side sends or ends; one that is shut ends for both."""
    far, near = ends
    assert not far.has_news()
    near.shut()
    with pytest.raises(EOFError):
        far.recv_bytes(MOST)
    assert far.has_news()
    assert near.has_news()


def test_a_longer_message_is_not_read(ends: list[StreamConnection]) -> None:
    """What announces more than is allowed is refused before its content arrives."""
    far, near = ends
    far.send_bytes(b"12345")
    with pytest.raises(OSError, match="a message of 5 bytes; at most 4 are allowed"):
        near.recv_bytes(4)


def test_another_authority_is_refused(tmp_path: Path) -> None:
    """A client believes only its own authority, and the server notices."""
    server, _ = contexts(Folder.make(tmp_path / "certs"))
    far, near = pair(server, Folder.make(tmp_path / "other").client().context())
    errors: list[Exception] = []

    def shake() -> None:
        try:
            far.handshake()
        except (ssl.SSLError, EOFError) as error:
            errors.append(error)

    other = threading.Thread(target=shake)
    other.start()
    with pytest.raises(ssl.SSLCertVerificationError):
        near.handshake()
    near.close()
    other.join(10.0)
    far.close()
    assert len(errors) == 1
