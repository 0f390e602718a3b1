"""Parses addresses of users: HOST:PORT, loopback addresses, and the ports for players.

Nothing large is imported. A player calls once, at its start, and plays untrained if nothing listens yet, so ports open
before settings are checked. Errors found here are reported by the full check.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final, NamedTuple

from actor_client.settings import PREFIX


def split_address(address: str, *, may_be_zero: bool = False) -> tuple[str, int]:
    """Returns host and port of HOST:PORT; an IPv6 address is in brackets.

    Args:
        address: The text.
        may_be_zero: Port 0, which means any free port of a listener, is allowed.

    Raises:
        ValueError: The text has another form.
    """
    if "://" in address:
        raise ValueError(f"{address!r} is a URL; write HOST:PORT alone, as in 127.0.0.1:50051")
    host, separator, port = address.rpartition(":")
    if not separator:
        raise ValueError(f"{address!r} has no port; write HOST:PORT, as in 127.0.0.1:50051")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} has no unambiguous port; write [ADDRESS]:PORT")
    if not host or not host.isprintable() or " " in host or "/" in host:
        raise ValueError(f"{address!r} has no host; write HOST:PORT, as in 127.0.0.1:50051")
    try:
        host.encode("idna")  # fails here as in the resolver, whose error no caller expects
    except UnicodeError:
        raise ValueError(f"{address!r} has no valid host name: write one whose parts have 1 to 63 characters") from None
    smallest = 0 if may_be_zero else 1
    if not port.isascii() or not port.isdigit() or not smallest <= int(port) < 65536:
        raise ValueError(f"{address!r} has no port from {smallest} to 65535; write HOST:PORT, as in 127.0.0.1:50051")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Returns whether a host is certainly this machine."""
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
"""The largest message of gRPC and protobuf."""
_TRUE: Final = frozenset({"1", "true", "t", "yes", "y", "on"})


class Ports(NamedTuple):
    """The addresses and ports to listen on for players.

    Attributes:
        hosts: Addresses to listen on.
        first: The port of worker 0; the others follow it.
        players: Number of players.
        max_message_bytes: Largest message of a player.
        is_editor: Unity's editor connects, and no build is started.
    """

    hosts: tuple[str, ...]
    first: int
    players: int
    max_message_bytes: int
    is_editor: bool


def early_ports(flags: Mapping[str, object], environ: Mapping[str, str]) -> Ports | None:
    """Returns the ports for players; None if only the full check of the settings can determine them.

    Args:
        flags: The values of the command line, by setting.
        environ: The process's variables.
    """
    variables = {name.upper(): value for name, value in environ.items() if value and name.upper().startswith(PREFIX)}

    def told(name: str) -> str | None:
        value = flags.get(name, variables.get(PREFIX + name.upper()))
        return None if value is None else str(value)

    hosts = split_hosts(told("player_address") or told("listen") or DEFAULT_LISTEN)
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
    """Returns the addresses of a comma-separated list; an IPv6 address may be in brackets."""
    hosts = (host.strip().removeprefix("[").removesuffix("]") for host in listen.split(","))
    return tuple(dict.fromkeys(host for host in hosts if host))
