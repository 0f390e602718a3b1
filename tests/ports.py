"""Reserves ports for processes that must be told theirs, without a race between tests that do so at the same time."""

from __future__ import annotations

import os
import socket
from itertools import chain
from typing import Final

_FIRST: Final = 20_000
_END: Final = 32_000
"""Below the ports that Linux gives to sockets that ask for any."""
_STEP: Final = 8
_held: list[socket.socket] = []


def reserve_ports(count: int = 1) -> int:
    """Returns the first of some consecutive ports on which no one listens, and which no other test gets while this process runs.

    Args:
        count: How many, at most 8.
    """
    first = _FIRST + os.getpid() * 64 % (_END - _FIRST)  # workers begin apart
    for port in chain(range(first, _END, _STEP), range(_FIRST, first, _STEP)):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0rollcast-tests-port-{port}")
        except OSError:  # of another test
            lock.close()
            continue
        _held.append(lock)
        if all(_is_free(host, number) for number in range(port, port + count) for host in ("127.0.0.1", "::1")):
            return port
    raise AssertionError(f"no {count} ports in a row are free")


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
