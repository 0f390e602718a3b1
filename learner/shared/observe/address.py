"""Records a learner's addresses in the run folder; with port 0 this is their only source."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rollcast.addresses import reached_here, split_address
from rollcast.files import read_regular

from learner.shared.files import WriteFailed, open_regular, write_file
from learner.shared.observe.jsonfile import write_json

ADDRESS_FILE = "address.json"
TRAINERS_FILE = ".trainers"
"""Says that a learner waits for its trainers, and where; by it, rank 0 also knows that it has the folder of the service."""
_MAX_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class BoundAddresses:
    """The addresses of a running learner, ``host:port`` each.

    Attributes:
        address: Address for actors.
        http: Address of the status page, the operators' commands, the metrics and the health check; empty if they are not served.
        tls: Whether they use TLS.
        ca: File with the authority of the learner's certificate; empty if it is not known.
        token: File with the operators' token; empty without one.
        run_id: Id of its run; empty if unknown.
        host: Name of its machine; empty if unknown.
        page: Address at which people reach the status page, if it is not `http`; empty otherwise.
        owner: User to whom the file with these addresses belongs; None if they are not from a file.
    """

    address: str
    http: str = ""
    tls: bool = False
    ca: str = ""
    token: str = ""
    run_id: str = ""
    host: str = ""
    page: str = ""
    owner: int | None = field(default=None, compare=False)

    @property
    def all(self) -> list[str]:
        """The addresses that are served."""
        return [self.address, *([self.http] if self.http else [])]

    @property
    def page_url(self) -> str:
        """URL of the status page for people; empty if it is not served."""
        return page_url(self.http and (self.page or self.http), tls=self.tls)


def write_addresses(run_folder: Path, addresses: BoundAddresses) -> Path:
    """Writes ``address.json`` into the run folder in one step and returns its path.

    Raises:
        WriteFailed: The folder is not writable.
    """
    path = run_folder / ADDRESS_FILE
    document = {"address": addresses.address, "http": addresses.http}
    document |= {name: value for name in ("run_id", "host", "page") if (value := getattr(addresses, name))}
    if addresses.token:
        document["token"] = addresses.token
    if addresses.tls:
        document["ca"] = addresses.ca
    write_json(path, document)
    return path


def read_addresses(run_folder: Path) -> BoundAddresses | None:
    """Returns the addresses saved by :func:`write_addresses`, or None if they are missing or invalid.

    Each address has the form ``host:port``, and each path can be one, so that no caller fails at them.
    """
    try:
        with open_regular(run_folder / ADDRESS_FILE) as stream:
            content, owner = json.loads(stream.read(_MAX_BYTES)), os.fstat(stream.fileno()).st_uid
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    address, http = content.get("address"), content.get("http", "")
    if not isinstance(address, str) or not isinstance(http, str):
        return None
    values = (content.get(name) for name in ("ca", "token", "run_id", "host", "page"))
    ca, token, run_id, host, page = (value if isinstance(value, str) else "" for value in values)
    served = (address, *filter(None, (http, page)))
    if not all(map(_is_address, served)) or not all(map(_is_path, (ca, token))):
        return None
    return BoundAddresses(address, http, "ca" in content, ca, token, run_id, host, page, owner)


def _is_address(text: str) -> bool:
    with contextlib.suppress(ValueError):
        _ = split_address(text)
        return True
    return False


def _is_path(text: str) -> bool:
    with contextlib.suppress(UnicodeEncodeError):
        return b"\0" not in os.fsencode(text)
    return False


def page_url(http: str, *, tls: bool = False) -> str:
    """Returns the URL of the page for a browser on this machine; empty without an address ``host:port``.

    A learner that listens on all addresses is reached at the loopback address.

    Args:
        http: Address of the page.
        tls: Whether it is served with TLS.
    """
    if not http:
        return ""
    return f"{'https' if tls else 'http'}://{reached_here(http)}/"


def remove_addresses(run_folder: Path) -> None:
    """Removes ``address.json`` and ``.trainers`` when the learner ends; does nothing if they are missing or cannot be removed."""
    for name in (ADDRESS_FILE, TRAINERS_FILE):
        with contextlib.suppress(OSError):
            (run_folder / name).unlink()


@dataclass(frozen=True, slots=True)
class AwaitedAddress:
    """The address at which a learner waits for trainers on other machines.

    Attributes:
        attempt: Name of the attempt that they begin.
        address: ``host:port``; empty if the learner starts its trainers again itself.
    """

    attempt: str
    address: str = ""


STARTS_AGAIN: Final = AwaitedAddress("-")
"""Trainers that the learner starts again itself."""


def write_awaited(run_folder: Path, awaited: AwaitedAddress) -> None:
    """Writes ``.trainers`` in place of ``address.json``, where nothing answers; without it, rank 0 says what is missing."""
    with contextlib.suppress(WriteFailed):
        write_file(run_folder / TRAINERS_FILE, f"{awaited.attempt} {awaited.address}".encode("ascii"))
    with contextlib.suppress(OSError):
        (run_folder / ADDRESS_FILE).unlink()


def read_awaited(run_folder: Path) -> AwaitedAddress | None:
    """Returns what :func:`write_awaited` wrote, or None if it is missing or invalid."""
    try:
        words = read_regular(run_folder / TRAINERS_FILE, _MAX_BYTES).decode("ascii").split()
    except (OSError, UnicodeDecodeError):
        return None
    is_valid = words == [STARTS_AGAIN.attempt] or (len(words) == 2 and _is_address(words[1]))
    return AwaitedAddress(*words) if is_valid else None
