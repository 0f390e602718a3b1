"""The TLS of channels: credentials from files that are read for each connection, and words about failed handshakes."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rollcast import other_services, proxies
from rollcast.auth import MAX_FILE_BYTES, TOKEN_FORM, authorization
from rollcast.files import read_regular

if TYPE_CHECKING:  # operators' commands need no gRPC, which takes a while to import
    import grpc

PROBE_SECONDS: Final = 3.0
"""Longest duration of a handshake that only finds out why others fail."""
_FIRST_READ_SECONDS: Final = 0.5
"""Seconds in which a server refuses a client certificate after the handshake, in TLS 1.3."""
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME: Final = frozenset({62, 64})
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10


class IdentityError(Exception):
    """Raised if a certificate, key or token file cannot be used; the message names the file and shows no content."""


def read_file(path: Path) -> bytes:
    """Returns the content of a certificate, key or token file.

    Raises:
        IdentityError: The file cannot be read, is not a regular file, or is too large.
    """
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror or error}") from None


def readable_by_others(path: Path) -> bool:
    """Returns whether users other than the owner can read a file; False where files have no such modes (Windows)."""
    try:
        return hasattr(os, "fchmod") and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def read_token(path: Path) -> str:
    """Returns the token in a file.

    Raises:
        IdentityError: The file cannot be read, or holds no token.
    """
    return parsed_token(read_file(path), path)


def parsed_token(content: bytes, path: Path) -> str:
    """Returns the token in the content of a file.

    Raises:
        IdentityError: It holds no token.
    """
    text = content.decode("utf-8", "replace").strip()
    if TOKEN_FORM.fullmatch(text) is None:
        raise IdentityError(f"{path} must hold one token of 16 to 512 printable characters without spaces")
    return text


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client connects: in plain text or with TLS, and with which token. Files are read for each connection.

    Attributes:
        ca: Certificates of the authorities that may sign the server's certificate; None for plain text.
        cert: The client's certificate; None for none.
        key: Its private key.
        token_file: File with the client's token; None for none.
        server_name: Name in the server's certificate, if the client dials another one, as through a tunnel.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    server_name: str | None = None

    @property
    def exposed(self) -> tuple[Path, ...]:
        """The files with secrets that other users can read: a fault, or the way in which an orchestrator mounts secrets."""
        secret = (self.key, self.token_file)
        return tuple(path for path in secret if path is not None and readable_by_others(path))

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of every call.

        Raises:
            IdentityError: The token cannot be read.
        """
        return authorization(read_token(self.token_file)) if self.token_file is not None else ()

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Returns the credentials of a channel; None for plain text.

        Raises:
            IdentityError: A file cannot be read.
        """
        import grpc  # noqa: PLC0415

        return None if self.ca is None else grpc.ssl_channel_credentials(read_file(self.ca), *self._pair())

    def _pair(self) -> tuple[bytes | None, bytes | None]:
        """Returns the content of the key and of the certificate.

        Raises:
            IdentityError: A file cannot be read, or they do not belong together.
        """
        key = read_file(self.key) if self.key is not None else None
        cert = read_file(self.cert) if self.cert is not None else None
        if self.key is not None and self.cert is not None:
            check_pair(self.cert, self.key)
        return key, cert

    def options(self, address: str, options: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Returns the options of a channel, with its proxy and the expected name of the server."""
        is_tls = self.ca is not None
        named = [("grpc.ssl_target_name_override", self.server_name)] if is_tls and self.server_name is not None else []
        return [*options, *proxies.proxy_options(address, tls=is_tls), *named]

    def proxy_words(self, address: str) -> str:
        """Returns what to know about the proxy when a connection fails; see `rollcast.proxies.proxy_words`."""
        return proxies.proxy_words(address, tls=self.ca is not None)

    def check(self) -> None:
        """Reads all files once.

        Raises:
            IdentityError: A file cannot be used.
        """
        self.metadata()
        if self.ca is not None:
            self.context()
            self._pair()

    def sync_channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        """Returns a synchronous channel.

        Raises:
            IdentityError: A file cannot be read.
        """
        import grpc  # noqa: PLC0415

        credentials, options = self.credentials(), self.options(address, options)
        if credentials is None:
            return grpc.insecure_channel(address, options=options)
        return grpc.secure_channel(address, credentials, options=options)

    def aio_channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """Returns an asynchronous channel.

        Raises:
            IdentityError: A file cannot be read.
        """
        import grpc  # noqa: PLC0415

        credentials, options = self.credentials(), self.options(address, options)
        if credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, credentials, options=options)

    def connection(self, host: str, port: int, seconds: float) -> socket.socket:
        """Returns a connection for HTTP/1.1, with TLS if there is an authority, on the way that a channel takes.

        Args:
            host: The server.
            port: Its port.
            seconds: Longest wait for an answer.

        Raises:
            IdentityError: A file cannot be used.
            OSError: Nothing answers, or the handshake fails.
        """
        if self.ca is None:
            return _connection(host, port, tls=False, seconds=seconds)
        context = self.context()
        context.set_alpn_protocols(["http/1.1"])
        plain = _connection(host, port, tls=True, seconds=seconds)
        return context.wrap_socket(plain, server_hostname=self.server_name or host)

    def problem(self, host: str, port: int) -> str:
        """Finds out by one handshake why connections to a server fail; empty if the handshake succeeds.

        Blocks for at most some seconds. A server that does not answer at all has no problem of this kind.
        """
        try:
            if self.ca is None:
                return _uses_tls(host, port)
            return self._handshake(host, port, self.context())
        except IdentityError as error:
            return str(error)
        except OSError:
            return ""

    def other_service(self, host: str, port: int, expected: other_services.Service = "grpc") -> str:
        """Returns in words which other service answers at an address; empty if none does, or it cannot be told.

        Blocks for at most some seconds. Call it if connections fail and there is no `problem`.
        """

        def connect() -> socket.socket:
            plain = _connection(host, port, tls=self.ca is not None)
            return (
                plain
                if self.ca is None
                else self.context().wrap_socket(plain, server_hostname=self.server_name or host)
            )

        try:
            return other_services.found_at(connect, host, port, expected)
        except (IdentityError, OSError):
            return ""

    def context(self) -> ssl.SSLContext:
        """Returns a context of Python's ``ssl`` for connections without gRPC; there must be an authority.

        Raises:
            IdentityError: A file cannot be used.
        """
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=authorities(self.ca))
        context.set_alpn_protocols(["h2"])
        if self.cert is not None:
            load_pair(context, self.cert, self.key or self.cert)
        return context

    def _handshake(self, host: str, port: int, context: ssl.SSLContext) -> str:
        name = self.server_name or host
        with _connection(host, port, tls=True) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=name) as secure:
                    secure.settimeout(_FIRST_READ_SECONDS)
                    with contextlib.suppress(TimeoutError):
                        if not secure.recv(1):  # gRPC's server closes the connection without an alert
                            return _certificate_words(has_certificate=self.cert is not None)
            except ssl.SSLCertVerificationError as error:
                return _verification_words(error, name)
            except ssl.SSLEOFError:
                return ""  # a server that is full says nothing, nor does a proxy whose server is gone
            except ssl.SSLError as error:
                return _handshake_words(error, has_certificate=self.cert is not None)
        return ""


def authorities(ca: Path | None) -> str | None:
    """Returns the certificates of a file, in PEM form; None without a file.

    Raises:
        IdentityError: The file cannot be read, or holds no certificate.
    """
    if ca is None:
        return None
    text = read_file(ca).decode("ascii", "replace")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise IdentityError(f"{ca} holds no certificates in PEM form") from None
    return text


def _connection(host: str, port: int, *, tls: bool, seconds: float = PROBE_SECONDS) -> socket.socket:
    """Returns a connection on the way that a channel takes.

    Raises:
        OSError: Nothing answers.
    """
    proxy = proxies.proxy_of(host, tls=tls)
    if proxy is None or proxy.problem:
        return socket.create_connection((host, port), seconds)
    return proxy.connect(host, port, seconds)


def _uses_tls(host: str, port: int) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with _connection(host, port, tls=False) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host):
                return (
                    "the learner uses TLS, and this side plain text: actors need --certs DIR, made by rollcast join "
                    "DIR; operators' commands --tls-ca FILE"
                )
        except ssl.SSLError:
            return ""


def _verification_words(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code == _EXPIRED:
        return (
            "the learner's certificate has expired, or this machine's clock is wrong: renew it with rollcast "
            "certs renew"
        )
    if error.verify_code == _NOT_YET_VALID:
        return "the learner's certificate is not valid yet: compare the clocks of both machines"
    if error.verify_code in _WRONG_NAME:
        return (
            f"the learner's certificate is for other names than {name}: make one with rollcast certs renew DIR "
            f"--host {name}, or give one of its names with --server-name"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return "the learner's certificate is from an authority that is not in --tls-ca: give the learner's ca.pem"
    return f"the learner's certificate is refused: {error.verify_message}"


def _handshake_words(error: ssl.SSLError, *, has_certificate: bool) -> str:
    reason = (error.reason or "").upper()
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason or "HTTP_REQUEST" in reason:
        return "the learner uses plain text, and this side TLS: give the learner a certificate, or leave --tls-ca out"
    if "ALERT" in reason:
        return _certificate_words(has_certificate=has_certificate)
    return f"the TLS handshake failed: {reason or error}"


def _certificate_words(*, has_certificate: bool) -> str:
    if not has_certificate:
        return "the learner requires a client certificate: give --tls-cert and --tls-key"
    return (
        "the learner refuses this side's certificate: it must be from the authority in the learner's tls_client_ca, and "
        "not have expired"
    )


def check_pair(cert: Path, key: Path) -> None:
    """Checks that a certificate and a key belong together.

    Raises:
        IdentityError: They do not, or a file cannot be read.
    """
    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)


def load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Loads a certificate and its key into a context.

    Raises:
        IdentityError: They do not belong together, or a file cannot be read.
    """
    for path in (cert, key):
        read_file(path)  # OpenSSL would wait for a pipe
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError:
        raise IdentityError(f"{cert} and {key} are not a certificate and its private key in PEM form") from None
    except OSError as error:
        raise IdentityError(f"{cert} or {key} cannot be read: {error.strerror or error}") from None


def _no_password() -> str:
    return ""  # otherwise OpenSSL would ask on the terminal for the password of an encrypted key
