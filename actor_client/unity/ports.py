"""Checks which ports for players can be opened, and names those that cannot."""

import errno
import socket
from typing import Final

from rollcast.addresses import reuse_address

from actor_client.exits import ActorError, ExitCode
from actor_client.settings.addresses import Ports

LOOPBACK: Final = ("127.0.0.1", "::1")
"""Addresses to listen on: a player resolves `localhost` to either and tries only that one."""


def require_free(ports: Ports) -> None:
    """Checks that ports for players can be opened, before what takes longer begins.

    Raises:
        ActorError: One cannot (PORT_IN_USE).
    """
    for port in range(ports.first, ports.first + ports.players):
        for host in ports.hosts:
            fault = fault_of(host, port)
            if fault is not None and not is_absent(host, fault):
                raise refused(host, port, fault.strerror or str(fault))


def fault_of(host: str, port: int) -> OSError | None:
    """Returns why an address cannot be bound, which gRPC does not report; None if it can."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            reuse_address(probe)  # as gRPC does: a port in TIME_WAIT is free
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        return error
    return None


def is_absent(host: str, fault: OSError) -> bool:
    """Returns whether this machine lacks an address of `LOOPBACK`, as not every machine has IPv6."""
    return fault.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT} and host in LOOPBACK


def refused(host: str, port: int, why: str) -> ActorError:
    """Returns the error that ends a command whose port cannot be opened."""
    return ActorError(
        ExitCode.PORT_IN_USE,
        f"port {port} for a player cannot be opened on {host} ({why.lower()}): end the process that listens there "
        "(an older run, the editor's trainer), or choose other ports with --base-port",
    )
