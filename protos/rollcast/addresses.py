"""Parses and shows addresses ``host:port``. Nothing large is imported: gateways read theirs before they check settings."""

import ipaddress
import socket
from typing import Final

REUSES_ADDRESSES: Final = not hasattr(socket, "SO_EXCLUSIVEADDRUSE")
"""False on Windows: there ``SO_REUSEADDR`` would allow a port in use, and closing connections do not block a port."""
BACKLOG: Final = 64
"""Most connections that wait to be accepted."""
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared, not bound


def split_address(address: str, *, least_port: int = 0) -> tuple[str, int]:
    """Returns host and port of ``host:port``; an IPv6 address is in brackets, as in ``[::1]:50051``.

    Args:
        address: The text.
        least_port: 0 allows port 0, which means any free port of a listener; 1 does not.

    Raises:
        ValueError: The text has another form; the message continues a sentence that names it.
    """
    if "://" in address:
        raise ValueError("must be host:port alone, without the scheme of a URL")
    host, separator, port = address.rpartition(":")
    is_number = port.isascii() and port.isdecimal()
    if not separator or not host or not is_number or not least_port <= int(port) <= 65535:
        raise ValueError(f"must be host:port with a port from {least_port} to 65535, as in 127.0.0.1:50051")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("must have its IPv6 address in brackets, as in [::1]:50051")
    if not _can_be_looked_up(host):
        raise ValueError("must have an IP address or a host name, whose parts have 1 to 63 characters")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Returns ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_everywhere(address: str) -> bool:
    """Returns whether who listens at an address ``host:port`` listens at all addresses of the machine."""
    return address.rpartition(":")[0] in _EVERYWHERE


def reached_here(address: str) -> str:
    """Returns the address ``host:port`` at which this machine reaches who listens at an address."""
    host, _, port = address.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}:{port}"


def reuse_address(listening: socket.socket) -> None:
    """Lets a socket use a port whose earlier connections are still closing, but never one that is in use."""
    listening.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)


def listen_on(address: str) -> socket.socket:
    """Returns a socket that listens at the first address of a name ``host:port``, without blocking; port 0 takes any free port.

    Raises:
        OSError: The name has no address, or the address is in use.
    """
    host, port = split_address(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        reuse_address(bound)  # old connections of an earlier process do not matter
        bound.setblocking(False)
        bound.bind(where)
        bound.listen(BACKLOG)  # two sockets may be bound to one port, but only one can listen
    except OSError:
        bound.close()
        raise
    return bound


def is_loopback(host: str) -> bool:
    """Returns whether a host is certainly this machine; another name may resolve to anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the IP address that a host is, without its zone, and as IPv4 if it stands for one; None for a name."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _can_be_looked_up(host: str) -> bool:
    """Returns whether the system can look a host up without an unexpected exception."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return bool(host) and host.isprintable() and not {" ", "/"} & set(host)
