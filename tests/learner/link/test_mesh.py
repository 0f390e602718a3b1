"""Tests the connections between ranks: what they carry, and who may join them."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from torch._C._distributed_c10d import FileStore

from learner.link.meeting import KEY_BYTES, Meeting, NotPrivateError, _prove, check_private
from learner.link.mesh import Mesh
from tests.learner.training.optimizers.rank_updates import pairs

SECONDS = 60.0
T = TypeVar("T")
KEY = secrets.token_bytes(KEY_BYTES)


def all_do(work: Callable[[int], T], ranks: int) -> list[T]:
    """Returns what each rank returns, in a thread of its own."""
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(work, range(ranks)))


def greet(mesh: Mesh) -> list[bytes]:
    """Returns what a rank hears if each tells each other both numbers, in as many bytes as the sum of them and a million."""
    sizes = [1_000_000 + mesh.rank + rank for rank in range(mesh.ranks)]
    heard = [bytearray(size) for size in sizes]
    mesh.exchange([bytes([mesh.rank]) * size for size in sizes], heard)
    return [bytes(each[-1:]) for each in heard]


def test_a_listener_that_begins_after_the_end_ends() -> None:
    """Ranks that are revoked as they meet may end before the thread has begun; it is no error."""
    meeting = Meeting("127.0.0.1")
    meeting.close()
    meeting._listen(0, 2, KEY)


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_hears_each_other(ranks: int) -> None:
    """Messages larger than what the sockets hold do not block each other."""
    meshes = [Mesh(rank, peers) for rank, peers in enumerate(pairs(ranks))]
    for rank, heard in enumerate(all_do(lambda rank: greet(meshes[rank]), ranks)):
        assert heard == [bytes([other]) if other != rank else b"\0" for other in range(ranks)]
    meshes[0].seconds = 0.2
    nothing: Sequence[bytearray] = [bytearray() for _ in range(ranks)]
    with pytest.raises(TimeoutError, match=r"Timed out waiting 0.2 s for rank 1$"):
        meshes[0].exchange(nothing, [bytearray(), bytearray(1), *nothing[2:]])
    meshes[1].close()
    with pytest.raises(ConnectionError, match="rank 1 has closed the connection"):
        meshes[0].exchange(nothing, [bytearray(), bytearray(1), *nothing[2:]])
    for mesh in meshes:
        mesh.close()


def test_memory_without_a_name_is_shared() -> None:
    """All ranks of a machine have the same memory, in which torch keeps a store as in a file."""
    meshes = [Mesh(rank, peers) for rank, peers in enumerate(pairs(3))]
    descriptors = all_do(lambda rank: meshes[rank].share_memory(), 3)
    stores = [FileStore(f"/proc/self/fd/{descriptor}", 3) for descriptor in descriptors]
    stores[0].set("key", "value")
    assert [store.get("key") for store in stores] == [b"value"] * 3
    del stores
    for mesh, descriptor in zip(meshes, descriptors, strict=True):
        mesh.close()
        os.close(descriptor)


@pytest.fixture
def meetings() -> Iterator[list[Meeting]]:
    """Lets three ranks listen."""
    found = [Meeting("127.0.0.1") for _ in range(3)]
    yield found
    for each in found:
        each.close()


def connected(address: str) -> socket.socket:
    """Connects to a rank as a stranger."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def pose(stranger: socket.socket) -> None:
    """Poses as rank 1 without the key."""
    with pytest.raises(OSError, match="the other side"):
        _prove(stranger, b"x" * KEY_BYTES, 1, is_dialer=True)


def echo(stranger: socket.socket) -> None:
    """Sends what it gets."""
    while part := stranger.recv(1024):
        stranger.sendall(part)


def test_only_ranks_meet(meetings: list[Meeting]) -> None:
    """Strangers that are silent, guess, echo, or pose as a rank are not met; and nothing listens afterwards."""
    addresses = [each.address for each in meetings]
    strangers = [connected(addresses[0]) for _ in range(100)]
    strangers[0].sendall(b"\1" * 65)
    threads = [threading.Thread(target=work, args=(strangers[place],)) for place, work in enumerate((pose, echo), 1)]
    for thread in threads:
        thread.start()
    found = all_do(lambda rank: meetings[rank].join(rank, addresses, KEY, SECONDS), 3)
    meshes = [Mesh(rank, peers) for rank, peers in enumerate(found)]
    for rank, heard in enumerate(all_do(lambda rank: greet(meshes[rank]), 3)):
        assert heard == [bytes([other]) if other != rank else b"\0" for other in range(3)]
    for thread in threads:
        thread.join(SECONDS)
    for address in addresses:
        with pytest.raises(ConnectionError):
            connected(address)
    for mesh in meshes:
        mesh.close()
    for stranger in strangers:
        stranger.close()


def test_who_does_not_come_is_named(meetings: list[Meeting]) -> None:
    """The ranks that were missing are named, and nothing listens any more."""
    addresses = [each.address for each in meetings]
    with pytest.raises(TimeoutError, match=r"rank 1, 2 did not come to 127"):
        meetings[0].join(0, addresses, KEY, 0.1)
    with pytest.raises(OSError, match="rank 0 at 127"):
        meetings[1].join(1, addresses, KEY, 0.1)


@pytest.mark.parametrize(
    "host",
    ["8.8.8.8", "2600::1", "::ffff:8.8.8.8", "0.0.0.0", "::", "224.0.0.1", "learner.example"],  # noqa: S104 - refused
)
def test_no_public_address(host: str) -> None:
    """Gradients do not travel in plain text over an address that others reach."""
    with pytest.raises(NotPrivateError):
        check_private(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.5", "192.168.1.2", "172.16.0.1", "fd00::1", "100.64.0.1"])
def test_private_addresses(host: str) -> None:
    """A private network of either family, and this machine, may be listened on."""
    check_private(host)
