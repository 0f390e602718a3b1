"""Addresses that users write: HOST:PORT, and whether other machines reach them. Without any package: it loads at once."""

import ipaddress


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
    """Whether a host is this machine for sure."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
