"""Connects ranks on several machines to each other, for a `learner.link.mesh.Mesh`.

Each rank listens at one address of its machine until all have come. The service tells all ranks the addresses and a random key; each
dials those with lower numbers, and both sides prove that they know the key. What follows is plain text.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final

from rollcast.addresses import join_address, split_address

from learner.link.entrance import Entrance, listen, shut

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_HANDSHAKE_SECONDS: Final = 10.0
_MOST_AT_ONCE: Final = 128
_LOOK_SECONDS: Final = 0.5


class NotPrivateError(ValueError):
    """Raised for an address at which a rank must not listen; the message says why."""


class Meeting:
    """Listens for the ranks with higher numbers.

    Args:
        host: IP address of this machine, at which it listens on a free port; see `check_private`.

    Raises:
        OSError: It cannot be used.

    Attributes:
        address: Where it listens, with the port.
    """

    def __init__(self, host: str) -> None:
        self._listener = listen(host, 0, _MOST_AT_ONCE)
        self._listener.settimeout(_LOOK_SECONDS)  # here, because the thread may begin after the end
        port = self._listener.getsockname()[1]
        self.address = join_address(host, port)
        self._entrance = Entrance(_MOST_AT_ONCE, _HANDSHAKE_SECONDS)
        self._changed = threading.Condition()
        self._found: dict[int, socket.socket] = {}
        self._is_over = False

    def join(self, rank: int, addresses: Sequence[str], key: bytes, seconds: float) -> dict[int, socket.socket]:
        """Returns a socket to each other rank, and stops listening.

        Args:
            rank: Number of this rank.
            addresses: Where each rank listens, by its number.
            key: What only ranks of this attempt know.
            seconds: After so long, the others count as lost.

        Raises:
            OSError, ValueError: Not all others were reached, or came, in time.
        """
        deadline = time.monotonic() + seconds
        threading.Thread(target=self._listen, args=(rank, len(addresses), key), name="meeting", daemon=True).start()
        try:
            for number in range(rank):
                handle = _dial(addresses[number], rank, number, key, deadline)
                with self._changed:
                    self._found[number] = handle
            with self._changed:
                others = len(addresses) - 1
                self._changed.wait_for(lambda: len(self._found) == others, max(0.0, deadline - time.monotonic()))
                self._is_over = True
                missing = [str(number) for number in range(len(addresses)) if number not in {rank, *self._found}]
                if missing:
                    raise TimeoutError(f"rank {', '.join(missing)} did not come to {self.address}")
                return dict(self._found)
        except BaseException:
            for handle in self._found.values():
                handle.close()
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Stops listening."""
        self._is_over = True
        shut(self._listener)
        self._listener.close()

    def _listen(self, rank: int, ranks: int, key: bytes) -> None:
        while not self._is_over:
            try:
                handle, peer = self._listener.accept()
            except TimeoutError:
                self._entrance.end_late()
                continue
            except OSError:
                return
            self._entrance.enter(handle, str(peer[0]))
            threading.Thread(target=self._welcome, args=(handle, rank, ranks, key), daemon=True).start()

    def _welcome(self, handle: socket.socket, rank: int, ranks: int, key: bytes) -> None:
        """Lets a rank in, or closes the connection of a stranger."""
        try:
            handle.settimeout(_HANDSHAKE_SECONDS)
            number = _prove(handle, key, rank, is_dialer=False)
        except OSError:
            handle.close()
            return
        finally:
            self._entrance.leave(handle)
        with self._changed:
            if self._is_over or not rank < number < ranks:
                handle.close()
                return
            earlier = self._found.pop(number, None)
            self._found[number] = handle
            self._changed.notify_all()
        if earlier is not None:  # a dial that its rank has given up
            earlier.close()


def check_private(host: str) -> None:
    """Checks where a rank is to listen for the others.

    Args:
        host: IP address.

    Raises:
        NotPrivateError: It is not one address of a private network, or of this machine alone.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise NotPrivateError(f"{host!r} is no IP address of this machine") from None
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_global or address.is_unspecified or address.is_multicast:
        raise NotPrivateError(
            f"ranks exchange gradients in plain text, and {host} is no address of a private network: give one with --address"
        )


def _dial(address: str, rank: int, number: int, key: bytes, deadline: float) -> socket.socket:
    """Connects to a rank that listens; another attempt follows as long as there is time."""
    host, port = split_address(address)
    pause = threading.Event()
    while True:
        try:
            handle = socket.create_connection((host, port), _HANDSHAKE_SECONDS)
            try:
                if _prove(handle, key, rank, is_dialer=True) != number:
                    raise ConnectionError("another rank listens there")
            except BaseException:
                handle.close()
                raise
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(f"rank {number} at {address} was not reached: {error}") from None
            pause.wait(_LOOK_SECONDS)
        else:
            return handle


def _prove(handle: socket.socket, key: bytes, rank: int, *, is_dialer: bool) -> int:
    """Proves to the other side that this one knows the key, checks its proof, and returns the number of its rank.

    Raises:
        OSError: It does not know the key, says nothing, or has closed the connection.
    """
    own = secrets.token_bytes(_NONCE_BYTES) + bytes([rank])
    handle.sendall(own)
    theirs = _read(handle, len(own))
    both = own + theirs if is_dialer else theirs + own
    roles = (b"dials", b"listens") if is_dialer else (b"listens", b"dials")
    mine, expected = (hmac.digest(key, role + both, "sha256") for role in roles)
    handle.sendall(mine)
    if not hmac.compare_digest(_read(handle, _PROOF_BYTES), expected):
        raise ConnectionError("the other side does not know the key")
    return theirs[-1]


def _read(handle: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = handle.recv(size - len(found))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        found += part
    return found
