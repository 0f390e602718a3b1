"""Addresses that users write: HOST:PORT, whether other machines reach them, and where players are awaited.

Nothing large is imported. A player calls once, at its start, and plays untrained if nothing listens yet, so ports open
before settings are checked; whatever is wrong here is left to the full check, which says so.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final, NamedTuple

from actor_client.settings import PREFIX


def split_address(address: str, *, may_be_zero: bool = False) -> tuple[str, int]:
    """Returns host and port of HOST:PORT; an IPv6 address stands in brackets.

    Args:
        address: The text.
        may_be_zero: Port 0 is allowed, which means any free one to whoever listens.

    Raises:
        ValueError: It is something else.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} has no clear port; write [ADDRESS]:PORT")
    if not host or not host.isprintable() or " " in host or "/" in host:
        raise ValueError(f"{address!r} names no host; write HOST:PORT, as in 127.0.0.1:50051")
    try:
        host.encode("idna")  # as the system's look-up does, which would raise what no caller expects
    except UnicodeError:
        raise ValueError(f"{address!r} names no host: write a name whose parts have 1 to 63 characters") from None
    smallest = 0 if may_be_zero else 1
    if not port.isascii() or not port.isdigit() or not smallest <= int(port) < 65536:
        raise ValueError(f"{address!r} has no port from {smallest} to 65535; write HOST:PORT, as in 127.0.0.1:50051")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """True if a host is this machine for sure."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


EDITOR_PORT: Final = 5004
BUILD_PORT: Final = 5005
DEFAULT_LISTEN: Final = "127.0.0.1,::1"
MAX_PLAYERS: Final = 1024
DEFAULT_MAX_MESSAGE_BYTES: Final = 256 << 20
LEAST_MAX_MESSAGE_BYTES: Final = 1 << 20
MOST_MAX_MESSAGE_BYTES: Final = (1 << 31) - 1
"""The most that gRPC and protobuf carry."""
_TRUE: Final = frozenset({"1", "true", "t", "yes", "y", "on"})


class Ports(NamedTuple):
    """Where players are awaited.

    Attributes:
        hosts: Addresses to listen on.
        first: The port of worker 0; the others follow it.
        players: How many there are.
        max_message_bytes: What one of them may send at once.
        is_editor: Unity's editor is awaited, and no build started.
    """

    hosts: tuple[str, ...]
    first: int
    players: int
    max_message_bytes: int
    is_editor: bool


def early_ports(flags: Mapping[str, object], environ: Mapping[str, str]) -> Ports | None:
    """Returns where players are awaited; None if that cannot be told before settings are checked in full.

    Args:
        flags: What the command line gave, by setting.
        environ: The process's variables.
    """
    variables = {name.upper(): value for name, value in environ.items() if value and name.upper().startswith(PREFIX)}

    def told(name: str) -> str | None:
        value = flags.get(name, variables.get(PREFIX + name.upper()))
        return None if value is None else str(value)

    hosts = split_hosts(told("listen") or DEFAULT_LISTEN)
    is_insecure = (told("insecure") or "").lower() in _TRUE
    try:
        first = int(told("base_port") or (BUILD_PORT if told("env") else EDITOR_PORT))
        count = int(told("num_envs") or 1)
        max_message_bytes = int(told("max_player_message_bytes") or DEFAULT_MAX_MESSAGE_BYTES)
    except ValueError:
        return None
    is_open = not is_insecure and not all(map(is_loopback, hosts))
    most = MAX_PLAYERS if told("env") else 1
    is_absurd = first < 1 or not 1 <= count <= most or first + count > 65536
    if is_open or is_absurd or not LEAST_MAX_MESSAGE_BYTES <= max_message_bytes <= MOST_MAX_MESSAGE_BYTES:
        return None
    return Ports(hosts, first, count, max_message_bytes, is_editor=not told("env"))


def split_hosts(listen: str) -> tuple[str, ...]:
    """Returns the addresses of a list with commas; an IPv6 address may stand in brackets."""
    hosts = (host.strip().removeprefix("[").removesuffix("]") for host in listen.split(","))
    return tuple(dict.fromkeys(host for host in hosts if host))
