"""Makes certificates: an authority of one's own, the learner's certificate, and those of clients. Needs `cryptography`."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from rollcast.addresses import split_address
from rollcast.auth import MAX_FILE_BYTES, Principal, principal_of_uri
from rollcast.files import read_regular

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, write_output
from learner.shared.settings.addresses import AUTHORITY, SERVER_CERT, SERVER_KEY

AUTHORITY_KEY: Final = Path("authority") / "ca.key"
"""The authority's private key, in a folder of its own: serving does not need it."""
ALWAYS: Final = ("localhost", "127.0.0.1", "::1")
"""Names that every certificate of a learner has."""
AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
_COMMON_NAME: Final = 64
"""Most characters of a common name (RFC 5280, appendix A.1); clients read the alternative names."""
_BACKDATED: Final = dt.timedelta(minutes=5)
"""Certificates are valid since then, because the clocks of two machines differ."""
_UNREADABLE: Final = (
    TypeError,
    UnsupportedAlgorithm,
    ValueError,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Errors of `cryptography` for files of another form, or of a kind that it does not know."""


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that signs certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str) -> Authority:
        """Returns a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME])])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = _builder(subject, subject, key, AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return cls(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """Returns the authority of a folder.

        Raises:
            UserError: Its certificate or key cannot be read.
        """
        try:
            certificate = x509.load_pem_x509_certificate(read_regular(folder / AUTHORITY, MAX_FILE_BYTES))
            key = serialization.load_pem_private_key(read_regular(folder / AUTHORITY_KEY, MAX_FILE_BYTES), None)
        except OSError as error:
            cure = f"make the folder with rollcast certs init {folder}"
            if (folder / AUTHORITY).exists():
                cure = "bring the authority's key back from where it is kept"
            raise UserError(ExitCode.USAGE, f"{error.filename} cannot be read: {error.strerror}; {cure}") from None
        except _UNREADABLE:
            raise UserError(
                ExitCode.USAGE, f"the authority in {folder} is not in PEM form without a password"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UserError(ExitCode.USAGE, f"{folder / AUTHORITY_KEY} is not a key on an elliptic curve")
        return cls(certificate, key)

    def save(self, folder: Path) -> None:
        """Writes the private key, and then the certificate, by which others see that the folder has an authority.

        Raises:
            UserError: A file cannot be written.
        """
        private_folder((folder / AUTHORITY_KEY).parent)
        write(folder / AUTHORITY_KEY, _key_pem(self.key), private=True)
        write(folder / AUTHORITY, _pem(self.certificate))

    def server(self, hosts: Sequence[str], days: float = CERTIFICATE_DAYS) -> tuple[bytes, bytes]:
        """Returns the certificate and private key of a learner, in PEM form.

        Args:
            hosts: Names and addresses of the learner.
            days: Days for which it is valid.
        """
        names = [_general_name(host) for host in hosts]
        return self._leaf(hosts[0], names, ExtendedKeyUsageOID.SERVER_AUTH, days)

    def client(self, principal: Principal, days: float = CERTIFICATE_DAYS) -> tuple[bytes, bytes]:
        """Returns the certificate and private key of a client, in PEM form.

        Args:
            principal: Its principal.
            days: Days for which it is valid.
        """
        names = [x509.UniformResourceIdentifier(principal.uri)]
        return self._leaf(principal.name, names, ExtendedKeyUsageOID.CLIENT_AUTH, days)

    def _leaf(
        self, name: str, names: Iterable[x509.GeneralName], usage: x509.ObjectIdentifier, days: float
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME])])
        builder = _builder(subject, self.certificate.subject, key, days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = builder.add_extension(issuer, critical=False).sign(self.key, hashes.SHA256())
        return _pem(certificate), _key_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    since = min(now, now + dt.timedelta(days=days)) - _BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def all_hosts(given: Iterable[str]) -> list[str]:
    """Returns the names of a learner's certificate: the given ones, this machine's name, and those of this machine only.

    International names are in their form for certificates (RFC 3490).

    Raises:
        UserError: A name is not a host name or an IP address.
    """
    return list(dict.fromkeys(_checked_host(host) for host in (*given, socket.gethostname(), *ALWAYS)))


def _checked_host(host: str) -> str:
    try:
        if ":" in host:
            ipaddress.ip_address(host)
            return host
        split_address(f"{host}:1")
        return host.encode("idna").decode("ascii")
    except ValueError:
        raise UserError(ExitCode.USAGE, f"--host {host!r} is no host name or IP address; leave the port out") from None


def hosts_of(folder: Path) -> list[str]:
    """Returns the names in the learner's certificate of a folder.

    Raises:
        UserError: The certificate cannot be read.
    """
    try:
        certificate = x509.load_pem_x509_certificate(read_regular(folder / SERVER_CERT, MAX_FILE_BYTES))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, x509.ExtensionNotFound, *_UNREADABLE):
        raise UserError(
            ExitCode.USAGE, f"{folder / SERVER_CERT} cannot be read; make it with rollcast certs init {folder}"
        ) from None
    return [str(name.value) for name in names]


def principal_in(pem: bytes) -> Principal | None:
    """Returns the principal of a client's certificate in PEM form; None if it names none."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return None
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return next((found for found in map(principal_of_uri, uris) if found is not None), None)


def save_server(folder: Path, authority: Authority, hosts: Sequence[str], days: float = CERTIFICATE_DAYS) -> None:
    """Writes the learner's certificate and key into a folder; the key first, so that a reader keeps the old pair.

    Raises:
        UserError: A file cannot be written.
    """
    cert, key = authority.server(hosts, days)
    write(folder / SERVER_KEY, key, private=True)
    write(folder / SERVER_CERT, cert)


def private_folder(folder: Path) -> None:
    """Creates a folder for its owner alone, unless it exists.

    Raises:
        UserError: It cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(ExitCode.NOT_SAVED, f"{folder} cannot be made: {error.strerror}") from None


def write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Replaces a file as a whole.

    Args:
        path: Path of the file.
        content: Its content.
        private: Whether only the owner may read it.

    Raises:
        UserError: It cannot be written.
    """
    try:
        write_output(path, content, private=private)
    except WriteFailed as error:
        raise UserError(ExitCode.NOT_SAVED, str(error)) from None


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
