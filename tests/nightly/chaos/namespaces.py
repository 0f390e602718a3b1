"""Network namespaces for actors, whose links can be cut; needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

_ENTER = "import os, sys; os.execvp('ip', ['ip', 'netns', 'exec', sys.argv[1], sys.executable, *sys.argv[2:]])"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace.

    Attributes:
        name: Of the namespace.
        host: Where this machine is, seen from it.
        address: Its own address.
        cable: The end that is here.
    """

    name: str
    host: str
    address: str
    cable: str

    @property
    def inside(self) -> tuple[str, ...]:
        """Returns a command prefix that runs a program in the namespace."""
        return "-c", _ENTER, self.name

    def cut(self) -> None:
        """Drops all packets in both directions without closing connections."""
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        """Restores the link."""
        _ip("link", "set", self.cable, "up")


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """Makes some; they are gone after the block."""
    tag = os.getpid() % 100_000
    made = [
        Namespace(f"rc{tag}n{number}", f"10.213.{number}.1", f"10.213.{number}.2", f"rc{tag}c{number}")
        for number in range(count)
    ]
    try:
        for each in made:
            _ip("netns", "add", each.name)
            _ip("link", "add", each.cable, "type", "veth", "peer", "name", "eth0", "netns", each.name)
            _ip("addr", "add", f"{each.host}/24", "dev", each.cable)
            _ip("link", "set", each.cable, "up")
            for device in ("lo", "eth0"):
                _ip("-n", each.name, "link", "set", device, "up")
            _ip("-n", each.name, "addr", "add", f"{each.address}/24", "dev", "eth0")
        yield made
    finally:
        for each in made:
            subprocess.run(["ip", "netns", "del", each.name], check=False, stderr=subprocess.DEVNULL)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
