"""Tests the address at which trainers of other machines arrive."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from rollcast.tls import ClientSecurity

from learner.commands.remote_door import MOST_AT_ONCE, Introduction, RefusedError, RemoteDoor, dial_front
from learner.identity.setup import Identity
from learner.link.stream import StreamConnection

RELEASE = "1.2.3"


@pytest.fixture
def door() -> Iterator[RemoteDoor]:
    """Opens a door for two ranks."""
    opened = RemoteDoor("127.0.0.1:0", Identity(), 2, RELEASE)
    yield opened
    opened.close()


class Ranks:
    """Dials a door; all connections are closed at the end.

    Args:
        door: The door.
        on_end: Closes them.
    """

    def __init__(self, door: RemoteDoor, on_end: ExitStack) -> None:
        self.door = door
        self._on_end = on_end
        self.attempts: dict[int, str] = {}
        self.connections: dict[int, StreamConnection] = {}

    def dial(self, rank: int, *, ranks: int = 2, release: str = RELEASE) -> None:
        """Dials as a rank, and waits until all have come."""
        introduction = Introduction(rank, ranks, release)
        connection, attempt = dial_front(self.door.address, ClientSecurity(), introduction, 20.0, lambda _: None)
        self._on_end.callback(connection.close)
        self.connections[rank], self.attempts[rank] = connection, attempt

    def arrive(self, rank: int) -> threading.Thread:
        """Dials as a rank in a thread."""
        thread = threading.Thread(target=self.dial, args=(rank,))
        thread.start()
        self._on_end.callback(thread.join, 30.0)
        return thread

    def raw(self, content: bytes | None = None) -> socket.socket:
        """Connects, and sends what is no rank's."""
        host, _, port = self.door.address.rpartition(":")
        found = self._on_end.enter_context(socket.create_connection((host, int(port)), timeout=20.0))
        if content is not None:
            found.sendall(len(content).to_bytes(4, "big") + content)
        return found

    def gather(self, attempt: str) -> tuple[threading.Thread, list[list[StreamConnection] | None]]:
        """Waits for the ranks in a thread."""
        found: list[list[StreamConnection] | None] = []

        def wait() -> None:
            connections = self.door.gather(attempt)
            found.append(connections)
            for each in connections or ():
                self._on_end.callback(each.close)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread, found


@pytest.fixture
def ranks(door: RemoteDoor) -> Iterator[Ranks]:
    """Dials the door."""
    with ExitStack() as on_end:
        yield Ranks(door, on_end)


INTRODUCTION = Introduction(0, 2, RELEASE).encode()


def test_ranks_come_in_any_order(ranks: Ranks) -> None:
    """All get the name of the attempt, and the connections are in the order of the ranks."""
    gathering, found = ranks.gather("one")
    for thread in [ranks.arrive(rank) for rank in (1, 0)]:
        thread.join(20.0)
    gathering.join(20.0)
    (connections,) = found
    assert connections is not None
    assert ranks.attempts == {0: "one", 1: "one"}
    for rank in (0, 1):
        ranks.connections[rank].send_bytes(b"rank %d" % rank)
        assert connections[rank].recv_bytes(100) == b"rank %d" % rank


def test_a_rank_that_is_started_again_replaces_the_earlier_one(ranks: Ranks) -> None:
    """The connection of a rank that has come again is closed."""
    earlier = ranks.raw(INTRODUCTION)
    gathering, found = ranks.gather("two")
    again = ranks.arrive(0)
    assert earlier.recv(1) == b""
    for thread in (ranks.arrive(1), again, gathering):
        thread.join(20.0)
    assert found != [None]
    assert ranks.attempts == {0: "two", 1: "two"}


def test_who_does_not_confirm_starts_the_wait_again(ranks: Ranks) -> None:
    """If a rank has died while it waited for the others, all must come again."""
    dead = ranks.raw(INTRODUCTION)
    dead.shutdown(socket.SHUT_WR)
    gathering, found = ranks.gather("three")
    other = ranks.arrive(1)
    assert dead.makefile("rb").read(24).endswith(b'"three"}')
    ranks.arrive(0).join(20.0)
    for thread in (other, gathering):
        thread.join(20.0)
    assert found != [None]
    assert ranks.attempts == {0: "three", 1: "three"}


@pytest.mark.parametrize(
    ("changes", "message"), [({"ranks": 3}, "waits for 2 trainers"), ({"release": "9.9"}, "this rank 9.9")]
)
def test_who_does_not_fit_is_told_why(ranks: Ranks, changes: dict[str, Any], message: str) -> None:
    """Another number of ranks, and another release, end with one line."""
    with pytest.raises(RefusedError, match=message):
        ranks.dial(0, **changes)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b"[" * 2000, b"\xff\xfe", b'[1, "0", 2, "1.2.3", null]', b'[1, -1, 2, "1.2.3", 7]'],
)
def test_nonsense_is_refused(ranks: Ranks, content: bytes) -> None:
    """What is no introduction gets an answer and the end of the connection."""
    stranger = ranks.raw(content)
    length = int.from_bytes(stranger.recv(4), "big")
    assert "refused" in json.loads(stranger.recv(length))
    assert stranger.recv(1) == b""


def test_silent_strangers_do_not_keep_ranks_out(ranks: Ranks) -> None:
    """Connections that say nothing take a part of the room, and a large announcement is refused at once."""
    for _ in range(MOST_AT_ONCE - 4):
        ranks.raw()
    large = ranks.raw()
    large.sendall(b"\xff\xff\xff\xff")
    assert large.recv(1) == b""
    gathering, found = ranks.gather("four")
    for thread in [ranks.arrive(rank) for rank in (0, 1)]:
        thread.join(20.0)
    gathering.join(20.0)
    assert found != [None]


def test_closing_ends_the_wait(ranks: Ranks) -> None:
    """A wait ends with the door."""
    gathering, found = ranks.gather("five")
    ranks.door.close()
    gathering.join(20.0)
    assert found == [None]
