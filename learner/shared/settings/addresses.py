"""Addresses, and the files by which a learner and its clients prove who they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollcast.addresses import is_loopback, join_address, split_address

SERVER_CERT: Final = "server.pem"
SERVER_KEY: Final = "server.key"
AUTHORITY: Final = "ca.pem"
TOKENS: Final = "tokens"
"""Names of the files in a folder of `rollcast certs init`."""


_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")


def host_names(text: str | None) -> tuple[str, ...]:
    """Returns host names that are separated by commas; None has none.

    Raises:
        ValueError: A part is not a host name.
    """
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(_HOST_NAME.fullmatch(name) for name in names):
        raise ValueError("must be host names of letters, digits, '-' and '.', without ports, separated by commas")
    return names


def with_port(address: str, port: int) -> str:
    """Returns an address ``host:port`` with another port."""
    return join_address(split_address(address)[0], port)


def is_local(address: str) -> bool:
    """Returns whether only this machine can reach an address ``host:port``."""
    return is_loopback(split_address(address)[0])


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """Files by which the learner and its clients prove who they are; None for those that are not used.

    Attributes:
        cert: The learner's certificate; None for plain text.
        key: Its private key.
        ca: Authority of the learner's certificate.
        client_ca: Authority of the clients' certificates; None if clients need none.
        tokens: The token file; None if clients need no token.
    """

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    client_ca: Path | None = None
    tokens: Path | None = None

    @property
    def identifies_clients(self) -> bool:
        """True if a client needs a token or a certificate."""
        return self.tokens is not None or self.client_ca is not None
