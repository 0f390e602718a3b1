"""Chooses the learner's address: its usual port, or a free one where another run has that."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from actor_client.settings.addresses import is_loopback, split_address
from actor_client.unity.dropin.exits import DropInError, ExitCode

USUAL_ADDRESS: Final = "127.0.0.1:50051"
_ATTEMPTS: Final = 100
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not to listen there


class LearnerAddress(NamedTuple):
    """Addresses of the learner, to listen on and to connect to.

    Attributes:
        listen: What the learner is told.
        local: Where players on this machine find it.
        port: The port of both.
        is_usual: It is the one that was asked for, or the usual one.
        is_shared: Other machines can reach it.
    """

    listen: str
    local: str
    port: int
    is_usual: bool
    is_shared: bool


@contextmanager
def reserved_address(address: str, *, may_move: bool) -> Iterator[LearnerAddress]:
    """Chooses where the learner listens, and keeps other runs of this command from choosing the same.

    A learner opens its port seconds after it was chosen. Until then nothing would keep a second run on this machine from
    the same port, and the players of one would train the other. So the UDP port of the same number, which is used for
    nothing else, is held as long as the run lasts.

    Args:
        address: HOST:PORT, from the settings; port 0 takes any.
        may_move: Another port will do as well: this one was not asked for.

    Raises:
        DropInError: The port is taken (PORT_IN_USE).
    """
    host, wanted = split_address(address, may_be_zero=True)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    claim = None if wanted == 0 else _claim(family, host, wanted)
    if claim is None and wanted and not may_move:
        raise DropInError(
            ExitCode.PORT_IN_USE,
            f"{address} cannot be listened on for gateways: end what listens there, or choose another --address",
        )
    is_usual = claim is not None or wanted == 0
    port = wanted
    if claim is None:
        claim, port = _any(family, host)
    try:
        yield LearnerAddress(
            listen=_joined(host, port),
            local=_joined(_EVERYWHERE.get(host, host), port),
            port=port,
            is_usual=is_usual,
            is_shared=not is_loopback(host),
        )
    finally:
        claim.close()


def _claim(family: socket.AddressFamily, host: str, port: int) -> socket.socket | None:
    """Returns the UDP socket that stands for a port that is free; None if it is not."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the learner does: a resting port is free
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
    """Returns a free port and the socket that stands for it.

    Raises:
        DropInError: There is none.
    """
    for _ in range(_ATTEMPTS):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((host, 0))
                port: int = probe.getsockname()[1]
        except OSError as error:
            message = f"{host} cannot be listened on ({error.strerror}): choose another --address"
            raise DropInError(ExitCode.PORT_IN_USE, message) from None
        claim = _claim(family, host, port)
        if claim is not None:
            return claim, port
    raise DropInError(ExitCode.PORT_IN_USE, f"{host} has no free port for the learner: give one by --address")


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
