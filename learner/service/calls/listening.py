"""Addresses of the learner's servers: whether they are free, listening there, and keeping them over a restart."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from typing import Final

import grpc
import structlog
from rollcast.addresses import reuse_address, split_address
from rollcast.server_tls import ServerSecurity

from learner.shared.exits import ExitCode, UserError

log = structlog.get_logger(__name__)

ADDRESS: Final = "--address (rollcast.address in the run file)"


def require_free(address: str, setting: str) -> None:
    """Checks that an address is available before a run folder is created; `listen` binds it.

    Args:
        address: Address of a server.
        setting: How to choose another one, for the message.

    Raises:
        UserError: The address is unavailable (PORT_IN_USE).
    """
    with hold([address]) as held:
        if not held:
            raise _cannot_listen(address, setting)


class HeldPorts(list[socket.socket]):
    """Sockets that are bound and do not listen. A context manager."""

    def __enter__(self) -> HeldPorts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the ports."""
        while self:
            self.pop().close()


def hold(addresses: Iterable[str]) -> HeldPorts:
    """Binds addresses, so that no other program's connection gets their ports until a server listens there again.

    An address that is not free is left out; the server that is to listen there reports it.
    """
    held = HeldPorts()
    for address in addresses:
        host, port = split_address(address)
        found = []
        with contextlib.suppress(OSError):  # the name of a host is unknown
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, where in found:
            bound = socket.socket(family, socket.SOCK_STREAM)
            try:
                reuse_address(bound)  # as gRPC does, so that old connections do not matter
                bound.bind(where)
            except OSError:
                bound.close()
            else:
                held.append(bound)
    return held


def listen(
    server: grpc.aio.Server, address: str, setting: str, security: ServerSecurity | None, *, falls_back: bool = False
) -> int:
    """Lets a server listen on an address, and returns its port.

    Args:
        server: Server that has not started.
        address: Its address; port 0 takes any free port.
        setting: How to choose another one, for the message.
        security: Certificate of the learner; None for plain text.
        falls_back: Whether to take a free port if the address is unavailable.

    Raises:
        UserError: The address is unavailable (PORT_IN_USE).
    """
    try:
        if security is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, security.credentials())
    except RuntimeError:
        port = 0
    if port == 0 and falls_back:
        host = address.rpartition(":")[0]
        moved = listen(server, f"{host}:0", setting, security)
        log.warning("port_taken", address=address, taken_instead=f"{host}:{moved}", setting=setting)
        return moved
    if port == 0:
        raise _cannot_listen(address, setting)
    return port


def _cannot_listen(address: str, setting: str) -> UserError:
    return UserError(
        ExitCode.PORT_IN_USE,
        f"cannot listen on {address}: the port is in use, or this machine has no such address. Stop the program "
        f"that listens there, or choose another address with {setting}; port 0 takes any free port, as in 127.0.0.1:0",
    )
