"""Decides for which host names a server answers, so that a page whose name was pointed here (DNS rebinding) reads nothing."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Sequence

from rollcast.addresses import ip_of, is_loopback, split_address


class AllowedHosts:
    """The host names that a request may be for, with any port: a tunnel may use another one.

    A port that other machines reach also accepts any IP address. The address of a machine behind a published port of a
    container is unknown here, and a page cannot rebind an address: that needs a name.

    Args:
        address: ``host:port`` at which the server listens. Its host is allowed if it is a name.
        names: Further host names.
        setting: Where the user adds a name, for the refusal.
    """

    def __init__(self, address: str, names: Collection[str], *, setting: str) -> None:
        host = split_address(address)[0]
        self._any_address = not is_loopback(host)
        self._setting = setting
        own = {host} if ip_of(host) is None else set()
        if self._any_address:
            own.add(socket.gethostname())
        self._names = frozenset(_canonical(name) for name in ("localhost", *own, *names))

    @property
    def refusal(self) -> str:
        """Text of a refusal. It names no host, because anyone can read it."""
        own = "an IP address or localhost" if self._any_address else "localhost, 127.0.0.1 or [::1]"
        return (
            f"this port does not answer to the host name of the request: use {own}, or add the name to {self._setting}"
        )

    def allow(self, hosts: Sequence[str]) -> bool:
        """Returns whether a request with these Host headers is allowed; there must be one."""
        if len(hosts) != 1:
            return False
        name = hosts[0].rpartition(":")[0] if hosts[0].rpartition("]")[2].count(":") else hosts[0]
        if _canonical(name) in self._names:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return address.is_loopback or (self._any_address and not address.is_unspecified)


def _canonical(name: str) -> str:
    return name.lower().removesuffix(".")
