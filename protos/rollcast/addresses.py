"""Parses addresses ``host:port``. Nothing large is imported: gateways read theirs before they check settings."""

import ipaddress


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


def is_loopback(host: str) -> bool:
    """Returns whether a host is certainly this machine; another name may resolve to anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _can_be_looked_up(host: str) -> bool:
    """Returns whether the system can look a host up without an unexpected exception."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return bool(host) and host.isprintable() and not {" ", "/"} & set(host)
