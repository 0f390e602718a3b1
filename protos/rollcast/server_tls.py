"""The TLS of servers: a certificate that is read again when its files change."""

import calendar
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from rollcast.tls import IdentityError, authorities, check_pair, load_pair, read_file

POLL_SECONDS: Final = 5.0
"""Seconds after which a changed file is noticed."""

_Content: TypeAlias = tuple[bytes, bytes, bytes | None]
"""Certificate, key and authorities of client certificates."""


class _NewestContext(ssl.SSLContext):
    """A context each of whose connections is one of the newest context: one context cannot forget an authority.

    A resumed session, whose certificate is not verified again, ends with its context, too.
    """

    def __init__(self, _protocol: int, *, newest: ssl.SSLContext, mode: ssl.VerifyMode) -> None:
        self.newest = newest
        self.mode = mode

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Returns a connection."""
        return self.newest.wrap_bio(*args, **kwargs)


class ServerSecurity:
    """A server's certificate, which is read again when its files change. Any thread may use it.

    Args:
        cert: The server's certificate, followed by those of intermediate authorities.
        key: Its private key.
        client_ca: Authorities of client certificates; None accepts clients without a certificate.
        on_problem: Called with one line when changed files cannot be used; the previous ones stay in use.
        poll_seconds: Shortest time between two looks at the files.

    Raises:
        IdentityError: A file cannot be used.
    """

    def __init__(
        self,
        cert: Path,
        key: Path,
        client_ca: Path | None = None,
        *,
        on_problem: Callable[[str], object] = lambda _: None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._on_problem = on_problem
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._contexts: list[_NewestContext] = []
        self._content = self._read()
        self._problem = ""

    def credentials(self) -> grpc.ServerCredentials:
        """Returns the credentials of one gRPC server; each handshake uses the files' newest content."""
        given = self._content

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            self.poll()
            if given is self._content:
                return None
            given = self._content
            return self._configuration()

        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            newest,  # type: ignore[arg-type]  # None, which the stubs leave out, keeps the present configuration
            require_client_authentication=self._client_ca is not None,
        )

    def http_context(self, *, require_certificate: bool) -> ssl.SSLContext:
        """Returns the context of a server without gRPC; a connection gets the certificates of the latest `poll`.

        Use it by its ``wrap_bio``, as asyncio does.

        Args:
            require_certificate: Whether clients without a certificate are refused, if there is an authority of client
                certificates.

        Raises:
            IdentityError: A file cannot be used.
        """
        mode = ssl.CERT_REQUIRED if require_certificate else ssl.CERT_OPTIONAL
        with self._lock:
            context = _NewestContext(ssl.PROTOCOL_TLS_SERVER, newest=self._context(self._content, mode), mode=mode)
            self._contexts.append(context)
        return context

    @property
    def not_after(self) -> float:
        """When the certificate expires, in seconds since 1970."""
        return expiry(self._content[0])

    def poll(self) -> None:
        """Reads the files again if the last look is long enough ago."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at < self._poll_seconds:
                return
            self._looked_at = now
            try:
                content = self._read()
                changed = content != self._content
                made = [self._context(content, each.mode) for each in self._contexts] if changed else []
            except IdentityError as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    self._on_problem(self._problem)
                return
            self._problem = ""
            if changed:
                self._content = content
                for context, newest in zip(self._contexts, made, strict=True):
                    context.newest = newest

    def _read(self) -> _Content:
        """Returns the content of the files, as it was both before and after it was checked."""
        content = self._contents()
        check_pair(self._cert, self._key)
        if self._client_ca is not None:
            authorities(self._client_ca)
        expiry(content[0])
        if self._contents() != content:
            raise IdentityError(f"{self._cert} and {self._key} are being replaced")
        return content

    def _context(self, content: _Content, mode: ssl.VerifyMode) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_pair(context, self._cert, self._key)
        if content[2] is not None:
            context.load_verify_locations(cadata=content[2].decode("ascii", "replace"))
            context.verify_mode = mode
        return context

    def _contents(self) -> _Content:
        client_ca = read_file(self._client_ca) if self._client_ca is not None else None
        return read_file(self._cert), read_file(self._key), client_ca

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        cert, key, client_ca = self._content
        return grpc.ssl_server_certificate_configuration([(key, cert)], client_ca)


_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_CENTURY_TURN: Final = 50


def expiry(pem: bytes) -> float:
    """Returns when the first certificate of a file expires, in seconds since 1970 (RFC 5280, section 4.1).

    Raises:
        IdentityError: The bytes are not a certificate.
    """
    try:
        text = pem.decode("ascii")
        start = text.index("-----BEGIN CERTIFICATE-----")
        end = text.index("-----END CERTIFICATE-----", start) + len("-----END CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert(text[start:end])
        _, certificate, _ = _element(der)
        _, body, _ = _element(certificate)
        tag, _, rest = _element(body)
        for _ in range(3 if tag == _VERSION else 2):  # serial number, signature algorithm, issuer
            _, _, rest = _element(rest)
        _, validity, _ = _element(rest)
        _, _, rest = _element(validity)
        tag, digits, _ = _element(rest)
        when = digits.decode("ascii")
        if tag == _UTC_TIME:
            when = ("20" if int(when[:2]) < _CENTURY_TURN else "19") + when
        return float(calendar.timegm(time.strptime(when, "%Y%m%d%H%M%SZ")))
    except (ValueError, IndexError):
        raise IdentityError("the certificate cannot be read") from None


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Splits DER into the tag and content of its first element, and the bytes that follow it."""
    tag, length, start = der[0], der[1], 2
    if length >= 0x80:
        count = length - 0x80
        length = int.from_bytes(der[2 : 2 + count], "big")
        start = 2 + count
    if len(der) < start + length:
        raise ValueError("truncated")
    return tag, der[start : start + length], der[start + length :]
