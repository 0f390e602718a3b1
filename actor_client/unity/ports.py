"""Where players are awaited, read from flags and variables alone.

A player calls once, at its start, and plays untrained if nothing listens yet. So ports open before settings are checked
and before anything large is imported; whatever is wrong here is left to the full check, which says so.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from actor_client.settings import PREFIX
from actor_client.settings.addresses import is_loopback

EDITOR_PORT: Final = 5004
BUILD_PORT: Final = 5005
DEFAULT_LISTEN: Final = "127.0.0.1,::1"
MAX_PLAYERS: Final = 1024
DEFAULT_MAX_MESSAGE_BYTES: Final = 256 << 20
LEAST_MAX_MESSAGE_BYTES: Final = 1 << 20
MOST_MAX_MESSAGE_BYTES: Final = (1 << 31) - 1
"""What gRPC and protobuf carry at most."""
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
