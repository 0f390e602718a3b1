"""Chooses the learner's address: its usual port, or a free one if another run uses that."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from rollcast.addresses import is_loopback, join_address, reached_here, reuse_address, split_address

from actor_client.unity.dropin.exits import DropInError, ExitCode

USUAL_ADDRESS: Final = "127.0.0.1:50051"
_ATTEMPTS: Final = 100


class LearnerAddress(NamedTuple):
    """Addresses of the learner, to listen on and to connect to.

    Attributes:
        listen: The address that the learner listens on.
        local: The address for players on this machine.
        port: The port of both.
        is_usual: The address is the requested or the default one.
        is_shared: Other machines can reach it.
    """

    listen: str
    local: str
    port: int
    is_usual: bool
    is_shared: bool


@contextmanager
def reserved_address(address: str, *, may_move: bool) -> Iterator[LearnerAddress]:
    """Chooses the learner's listening address, and keeps other runs of this command from choosing the same.

    A learner opens its port seconds after it was chosen. In that time a second run on this machine could choose the
    same port, and the players of one run would train the other. The UDP port of the same number, which has no other
    use, is therefore held until the run ends.

    Args:
        address: HOST:PORT, from the settings; port 0 takes any.
        may_move: Another port may be chosen, because the user did not ask for this one.

    Raises:
        DropInError: The port is taken (PORT_IN_USE).
    """
    host, wanted = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    claim = None if wanted == 0 else _claim(family, host, wanted)
    if claim is None and wanted and not may_move:
        raise DropInError(
            ExitCode.PORT_IN_USE,
            f"the learner cannot listen on {address}: end the process that listens there, or choose another --address",
        )
    is_usual = claim is not None or wanted == 0
    port = wanted
    if claim is None:
        claim, port = _any(family, host)
    try:
        yield LearnerAddress(
            listen=join_address(host, port),
            local=reached_here(join_address(host, port)),
            port=port,
            is_usual=is_usual,
            is_shared=not is_loopback(host),
        )
    finally:
        claim.close()


def _claim(family: socket.AddressFamily, host: str, port: int) -> socket.socket | None:
    """Returns the UDP socket that reserves a free port; None if the port is not free."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            reuse_address(probe)  # as the learner does: a port in TIME_WAIT is free
            probe.bind((host, port))
        claim = socket.socket(family, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        claim.bind((host, port))
    except OSError:
        claim.close()
        return None
    return claim


def _any(family: socket.AddressFamily, host: str) -> tuple[socket.socket, int]:
    """Returns a free port and the socket that reserves it.

    Raises:
        DropInError: No port is free.
    """
    for _ in range(_ATTEMPTS):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((host, 0))
                port: int = probe.getsockname()[1]
        except OSError as error:
            message = f"the learner cannot listen on {host} ({error.strerror}): choose another --address"
            raise DropInError(ExitCode.PORT_IN_USE, message) from None
        claim = _claim(family, host, port)
        if claim is not None:
            return claim, port
    raise DropInError(ExitCode.PORT_IN_USE, f"{host} has no free port for the learner: choose another --address")
