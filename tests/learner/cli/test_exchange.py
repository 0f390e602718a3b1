"""Tests the connection of operators' commands: with TLS, with client certificates, and with servers that are no learner."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rollcast.auth import Principal, Role
from rollcast.server_tls import ServerSecurity
from rollcast.tls import ClientSecurity

from learner.cli import exchange, operator
from learner.cli.operator import Operator
from learner.service.identity.access import Access
from learner.service.identity.setup import Identity
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.view import RunState
from tests.learner.service.identity.certificates import Folder
from tests.learner.service.web.site import serving


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns a folder with a viewer and an operator."""
    return Folder.make(tmp_path, eyes=Role.VIEWER, ops=Role.OPERATOR)


def test_commands_use_the_learner_s_certificate(folder: Folder, tmp_path: Path) -> None:
    """With its authority all commands work by token; another authority, name, or plain text is refused by name."""
    identity = Identity(Access(folder.path / "tokens"), ServerSecurity(*folder.server))
    other = Folder.make(tmp_path / "other")
    with serving(identity=identity) as site:
        address = site.server.address
        ops = folder.client("ops")
        asked = Operator(address, security=ops)
        assert asked.status().run.state is RunState.TRAINING
        asked.pause()
        asked.resume()
        assert asked.save_checkpoint() == "/there/within/120"
        assert asked.release("rig", "lab") == 1
        asked.drain(final=True)
        assert site.hooks.calls == ["pause", "resume", "checkpoint", "release rig of lab", "drain True"]
        assert Operator(address, security=folder.client("eyes")).accepts_actors()
        for security, said, code in (
            (folder.client("eyes"), "this is the token of a viewer", ExitCode.NOT_ALLOWED),
            (replace(ops, token_file=None), "requires a token: give --token-file", ExitCode.NOT_ALLOWED),
            (replace(ops, ca=other.ca), "authority", ExitCode.UNREACHABLE),
            (replace(ops, server_name="elsewhere.example"), "other names than elsewhere", ExitCode.UNREACHABLE),
            (ClientSecurity(), "the learner uses TLS", ExitCode.UNREACHABLE),
        ):
            with pytest.raises(UserError, match=said) as caught:
                Operator(address, security=security).drain(final=False)
            assert caught.value.exit_code is code
        assert site.hooks.calls.count("drain False") == 0


def test_commands_send_their_certificate(folder: Folder) -> None:
    """Where certificates name principals, an operator's alone controls the run, and a missing one is named."""
    identity = Identity(Access(takes_certificates=True), ServerSecurity(*folder.server, folder.ca))
    with serving(identity=identity) as site:
        Operator(site.server.address, security=folder.client(certificate=Principal("me", Role.OPERATOR))).drain(
            final=True
        )
        assert site.hooks.calls == ["drain True"]
        with pytest.raises(UserError, match="give --tls-cert and --tls-key"):
            Operator(site.server.address, security=ClientSecurity(folder.ca)).pause()


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Answers each connection in a thread of its own; ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(connection: socket.socket) -> None:
            with connection:
                try:
                    connection.recv(4096)
                    answer(connection)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def said(body: bytes, status: str = "200 OK") -> Callable[[socket.socket], object]:
    """Returns an answer with a body."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return lambda connection: connection.sendall(head + body)


def endless(connection: socket.socket) -> None:
    """Sends an answer byte by byte, without an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    waits = threading.Event()
    while True:
        connection.sendall(b" ")
        waits.wait(0.05)


ANSWERS: dict[str, tuple[Callable[[socket.socket], object], ExitCode]] = {
    "no HTTP": (lambda connection: connection.sendall(b"\x00\xff" * 100), ExitCode.PROTOCOL_MISMATCH),
    "no JSON": (said(b"hello"), ExitCode.UNREACHABLE),  # a web server
    "a list": (said(b"[]"), ExitCode.UNREACHABLE),
    "deep": (said(b"[" * 100_000), ExitCode.UNREACHABLE),
    "another document": (said(b"{}"), ExitCode.PROTOCOL_MISMATCH),
    "a long number": (said(b'{"run_id": ' + b"9" * 5000 + b"}"), ExitCode.UNREACHABLE),
    "an error of another server": (said(b'{"error": "no"}', "500 X"), ExitCode.UNREACHABLE),
    "an error": (said(b'{"error": {"reason": "NO", "message": "a\\u001b[2J"}}', "500 X"), ExitCode.UNREACHABLE),
    "a redirect": (said(b"{}", "302 Found\r\nLocation: http://127.0.0.1:1/"), ExitCode.UNREACHABLE),
    "half": (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), ExitCode.UNREACHABLE),
    "nothing": (lambda _: None, ExitCode.UNREACHABLE),
    "many headers": (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000), ExitCode.UNREACHABLE),
    "endless": (endless, ExitCode.UNREACHABLE),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_whatever_answers_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server breaks a command, holds it up, or writes to the terminal."""
    monkeypatch.setattr(exchange, "CALL_SECONDS", 2.0)
    monkeypatch.setattr(operator, "CALL_SECONDS", 2.0)
    answer, code = ANSWERS[name]
    with answering(answer) as address, pytest.raises(UserError) as caught:
        Operator(address).status()
    assert caught.value.exit_code is code
    assert caught.value.message.isprintable()
    assert address in caught.value.message


def test_a_document_without_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document larger than any learner's is not kept in memory."""
    monkeypatch.setattr(exchange, "MAX_DOCUMENT_BYTES", 1000)
    with answering(said(b'{"a": "' + b"x" * 2000 + b'"}')) as address, pytest.raises(UserError):
        Operator(address).status()
