"""Parses the addresses and ports for players.

Nothing large is imported. A player calls once, at its start, and plays untrained if nothing listens yet, so ports open
before settings are checked. Errors found here are reported by the full check.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rollcast.addresses import is_loopback

from actor_client.settings import PREFIX

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
