"""Tests of TLS: reloaded certificates, and words about failed handshakes."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from rollcast import server_tls
from rollcast.auth import Principal, Role
from rollcast.server_tls import ServerSecurity, expiry
from rollcast.tls import ClientSecurity, IdentityError, read_token

from learner.service.identity.authority import Authority, save_server
from tests.learner.service.identity.certificates import HOSTS, Folder


@contextmanager
def served(security: ServerSecurity | None) -> Iterator[int]:
    """Serves no methods, and returns the port."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = (
        server.add_insecure_port("127.0.0.1:0")
        if security is None
        else server.add_secure_port("127.0.0.1:0", security.credentials())
    )
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def code(security: ClientSecurity, port: int) -> grpc.StatusCode:
    """Returns the code of a call of an unknown method: UNIMPLEMENTED if the connection was made."""
    with security.sync_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            cast("Any", channel.unary_unary("/a/b"))(b"", timeout=5)
        found = caught.value.code()
        assert isinstance(found, grpc.StatusCode)
        return found


def test_a_changed_certificate_is_served(tmp_path: Path) -> None:
    """The next handshake uses new files; a half-written pair is reported once and the old one stays."""
    folder, problems = Folder.make(tmp_path), list[str]()
    security = ServerSecurity(*folder.server, on_problem=problems.append, poll_seconds=0)
    with served(security) as port:
        assert code(folder.client(), port) is grpc.StatusCode.UNIMPLEMENTED
        folder.server[1].write_bytes(Authority.make("other").server(HOSTS)[1])
        for _ in range(2):
            assert code(folder.client(), port) is grpc.StatusCode.UNIMPLEMENTED
        assert len(problems) == 1
        other = Folder.make(tmp_path / "other")
        for old, new in zip(folder.server, other.server, strict=True):
            old.write_bytes(new.read_bytes())
        assert code(other.client(), port) is grpc.StatusCode.UNIMPLEMENTED
        assert "authority" in folder.client().problem("127.0.0.1", port)
        assert security.not_after == expiry(other.server[0].read_bytes())


def test_words_about_the_learners_certificate(tmp_path: Path) -> None:
    """Each fault of the learner's certificate has its own words."""
    folder, other = Folder.make(tmp_path / "a"), Folder.make(tmp_path / "b")
    with served(ServerSecurity(*folder.server)) as port:
        assert folder.client().problem("127.0.0.1", port) == ""
        assert "authority that is not in --tls-ca" in other.client().problem("127.0.0.1", port)
        assert "for other names than elsewhere" in replace(folder.client(), server_name="elsewhere").problem(
            "127.0.0.1", port
        )
        words = ClientSecurity().problem("127.0.0.1", port)
        assert "this side plain text: actors need --certs DIR, made by rollcast join DIR" in words
        missing = ClientSecurity(tmp_path / "none.pem")
        assert "cannot be read" in missing.problem("127.0.0.1", port)
    save_server(folder.path, folder.authority, HOSTS, days=-1)
    with served(ServerSecurity(*folder.server)) as port:
        assert "has expired" in folder.client().problem("127.0.0.1", port)


def test_words_about_plain_text(tmp_path: Path) -> None:
    """TLS to a learner in plain text is named; a port without a learner has no such problem."""
    folder = Folder.make(tmp_path)
    with served(None) as port:
        assert "the learner uses plain text" in folder.client().problem("127.0.0.1", port)
        assert ClientSecurity().problem("127.0.0.1", port) == ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert folder.client().problem("127.0.0.1", free.getsockname()[1]) == ""


def test_words_about_the_clients_certificate(tmp_path: Path) -> None:
    """A missing and a foreign client certificate are told apart."""
    folder, other = Folder.make(tmp_path / "a"), Folder.make(tmp_path / "b")
    lab = Principal("lab", Role.ACTOR)
    with served(ServerSecurity(*folder.server, folder.ca)) as port:
        assert code(folder.client(certificate=lab), port) is grpc.StatusCode.UNIMPLEMENTED
        assert folder.client(certificate=lab).problem("127.0.0.1", port) == ""
        assert "requires a client certificate" in folder.client().problem("127.0.0.1", port)
        foreign = replace(other.client(certificate=lab), ca=folder.ca)
        assert "refuses this side's certificate" in foreign.problem("127.0.0.1", port)
        assert code(foreign, port) is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_that_is_replaced_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault after the check is reported, and the next look takes the new files."""
    folder, problems = Folder.make(tmp_path), list[str]()
    security = ServerSecurity(*folder.server, on_problem=problems.append, poll_seconds=0)
    context, first = security.http_context(require_certificate=True), security.not_after

    def fails(*_: object) -> None:
        raise IdentityError("replaced")

    folder.renew(days=2)
    with monkeypatch.context() as patched:
        patched.setattr(server_tls, "load_pair", fails)
        security.poll()
    assert (problems, security.not_after) == (["replaced"], first)
    security.poll()
    assert security.not_after < first
    assert context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True).context is not context


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """A pipe, or a link to one, in place of a file is refused at once: nobody may ever write into it."""
    folder = Folder.make(tmp_path, lab=Role.ACTOR)
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link, Path(os.devnull)):
        with pytest.raises(IdentityError, match="not a regular file"):
            read_token(path)
        for files in ((path, folder.server[1]), (folder.server[0], path), (*folder.server, path)):
            with pytest.raises(IdentityError, match="not a regular file"):
                ServerSecurity(*files)
        with pytest.raises(IdentityError, match="not a regular file"):
            ClientSecurity(folder.ca, path).check()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """An unusable file is named, and its content is not shown."""
    folder = Folder.make(tmp_path, lab=Role.ACTOR)
    with pytest.raises(IdentityError, match="not a certificate and its private key"):
        ServerSecurity(folder.server[0], folder.server[0])
    with pytest.raises(IdentityError, match="cannot be read"):
        ServerSecurity(folder.server[0], tmp_path / "none")
    secret = tmp_path / "secret"
    secret.write_text("two SECRET words")
    with pytest.raises(IdentityError, match="must hold one token") as caught:
        read_token(secret)
    assert "SECRET" not in str(caught.value)
    empty = tmp_path / "empty"
    empty.touch()
    for path in (secret, empty):
        with pytest.raises(IdentityError, match="no certificates"):
            ClientSecurity(ca=path).check()
        with pytest.raises(IdentityError, match="no certificates"):
            ServerSecurity(*folder.server, path)
    for broken in (b"", b"-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----", b"\xff"):
        with pytest.raises(IdentityError, match="cannot be read"):
            expiry(broken)
