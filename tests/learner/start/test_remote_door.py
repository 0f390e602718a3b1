"""Tests the address at which trainers of other machines arrive."""

from __future__ import annotations

import json
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import structlog
from rollcast.auth import Role
from rollcast.other_services import OF_TRAINERS
from rollcast.tls import ClientSecurity

from learner.link.stream import StreamConnection
from learner.service.identity.access import Access
from learner.service.identity.audit import AUDIT_FILE, Audit
from learner.service.identity.setup import Identity
from learner.shared.introduction import Introduction, RefusedError
from learner.shared.observe.address import AwaitedAddress, write_awaited
from learner.shared.settings.addresses import TOKENS
from learner.start import rank_handshake
from learner.start.rank_handshake import MOST_AT_ONCE, RankHandshake
from learner.start.remote_dial import dial_front
from tests.e2e.processes import wait_until
from tests.learner.service.identity.certificates import Folder

RELEASE = "1.2.3"
SECONDS = 300.0
"""Until something hangs."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets introductions take longer than a test."""
    monkeypatch.setattr(rank_handshake, "HANDSHAKE_SECONDS", 2 * SECONDS)


@pytest.fixture
def door() -> Iterator[RankHandshake]:
    """Opens a door for two ranks."""
    opened = RankHandshake("127.0.0.1:0", Identity(), 2, RELEASE)
    yield opened
    opened.close()


class Ranks:
    """Dials a door; all connections are closed at the end.

    Args:
        door: The door.
        on_end: Closes them.
        token: File with their token; None for none.

    Attributes:
        folder: The run folder.
    """

    def __init__(self, door: RankHandshake, on_end: ExitStack, token: Path | None = None) -> None:
        self.door = door
        self.folder = Path(on_end.enter_context(TemporaryDirectory()))
        self._security = ClientSecurity(token_file=token)
        self._on_end = on_end
        self.met: dict[int, bytes] = {}
        self.connections: dict[int, StreamConnection] = {}

    def dial(self, rank: int, *, ranks: int = 2, release: str = RELEASE) -> None:
        """Dials as a rank, waits until all have come, and meets the other one."""
        introduction = Introduction(rank, ranks, release)
        connection, meet = dial_front(self.door.address, self._security, introduction, SECONDS, lambda _: None)
        self._on_end.callback(connection.close)
        mesh = meet(SECONDS)
        self._on_end.callback(mesh.close)
        heard = [bytearray(1) for _ in range(ranks)]
        mesh.exchange([b"%d" % rank] * ranks, heard)
        self.connections[rank], self.met[rank] = connection, bytes(heard[1 - rank])

    def arrive(self, rank: int) -> threading.Thread:
        """Dials as a rank in a thread."""
        thread = threading.Thread(target=self.dial, args=(rank,))
        thread.start()
        self._on_end.callback(thread.join, SECONDS)
        return thread

    def raw(self, content: bytes | None = None) -> socket.socket:
        """Connects, and sends what is no rank's."""
        host, _, port = self.door.address.rpartition(":")
        found = self._on_end.enter_context(socket.create_connection((host, int(port)), timeout=SECONDS))
        if content is not None:
            found.sendall(len(content).to_bytes(4, "big") + content)
        return found

    def note(self, attempt: str) -> None:
        """Writes the name of an attempt into the run folder."""
        write_awaited(self.folder, AwaitedAddress(attempt, self.door.address))

    def gather(self, attempt: str) -> tuple[threading.Thread, list[list[StreamConnection] | None]]:
        """Waits for the ranks in a thread."""
        found: list[list[StreamConnection] | None] = []
        self.note(attempt)

        def wait() -> None:
            connections = self.door.gather(attempt, self.folder)
            found.append(connections)
            for each in connections or ():
                self._on_end.callback(each.close)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread, found


@pytest.fixture
def ranks(door: RankHandshake) -> Iterator[Ranks]:
    """Dials the door."""
    with ExitStack() as on_end:
        yield Ranks(door, on_end)


INTRODUCTION = Introduction(0, 2, RELEASE).encode()


def join(*threads: threading.Thread) -> None:
    """Waits until threads have ended."""
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def have_come(found: list[list[StreamConnection] | None]) -> bool:
    """Returns whether a wait ended with both ranks."""
    return [len(connections or ()) for connections in found] == [2]


def test_ranks_come_in_any_order(ranks: Ranks) -> None:
    """All meet each other, and the connections are in the order of the ranks."""
    gathering, found = ranks.gather("one")
    join(ranks.arrive(1), ranks.arrive(0), gathering)
    (connections,) = found
    assert connections is not None
    assert ranks.met == {0: b"1", 1: b"0"}
    for rank in (0, 1):
        ranks.connections[rank].send_bytes(b"rank %d" % rank)
        assert connections[rank].recv_bytes(100) == b"rank %d" % rank


def test_a_rank_that_is_started_again_replaces_the_earlier_one(ranks: Ranks) -> None:
    """The connection of a rank that has come again is closed."""
    earlier = ranks.raw(INTRODUCTION)
    gathering, found = ranks.gather("two")
    again = ranks.arrive(0)
    assert earlier.recv(1) == b""
    join(ranks.arrive(1), again, gathering)
    assert have_come(found)
    assert ranks.met == {0: b"1", 1: b"0"}


def test_who_does_not_confirm_starts_the_wait_again(ranks: Ranks) -> None:
    """If a rank has died while it waited for the others, all must come again."""
    dead = ranks.raw(INTRODUCTION)
    gathering, found = ranks.gather("three")
    other = ranks.arrive(1)
    length = int.from_bytes(dead.recv(4), "big")
    assert b'"three"' in dead.recv(length)
    dead.shutdown(socket.SHUT_WR)
    ranks.arrive(0).join(SECONDS)
    join(other, gathering)
    assert have_come(found)
    assert ranks.met == {0: b"1", 1: b"0"}


def test_a_rank_0_without_the_run_folder_is_sent_away(ranks: Ranks) -> None:
    """It learns why, the log has it, and the service waits on for one that sees the folder."""
    with structlog.testing.capture_logs() as lines:
        gathering, found = ranks.gather("apart")
        ranks.note("of another learner")
        other = ranks.arrive(1)
        with pytest.raises(RefusedError, match="rank 0 does not see the run folder"):
            ranks.dial(0)
        ranks.note("apart")
        join(ranks.arrive(0), other, gathering)
    assert have_come(found)
    (line,) = (line for line in lines if line["log_level"] == "warning")
    assert line["event"] == "trainer_refused"
    assert str(ranks.folder) in line["reason"]


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
    large = ranks.raw()
    large.sendall(b"\xff\xff\xff\xff")
    length = int.from_bytes(large.recv(4), "big")
    assert OF_TRAINERS in json.loads(large.recv(length))["refused"], "a large announcement is refused at once"
    assert large.recv(1) == b""


def drip(sockets: list[socket.socket], ended: threading.Event) -> None:
    """Sends a part of an endless message on each connection now and then."""
    while not ended.wait(0.3):
        for each in list(sockets):
            try:
                each.sendall(b"\0")
            except OSError:
                sockets.remove(each)


@pytest.mark.usefixtures("patient")
def test_slow_strangers_do_not_keep_ranks_out(ranks: Ranks) -> None:
    """Connections that go on sending byte by byte lose their places to ranks."""
    announced = (4000).to_bytes(4, "big")
    slow = [ranks.raw() for _ in range(MOST_AT_ONCE + 8)]
    for each in slow:
        each.sendall(announced)
    ended = threading.Event()
    dripping = threading.Thread(target=drip, args=(list(slow), ended))
    dripping.start()
    gathering, found = ranks.gather("slow")
    try:
        join(ranks.arrive(0), ranks.arrive(1), gathering)
        assert have_come(found)
    finally:
        ended.set()
        dripping.join()


def test_an_introduction_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that sends a byte now and then is ended all the same."""
    monkeypatch.setattr(rank_handshake, "HANDSHAKE_SECONDS", 1.0)
    with ExitStack() as on_end:
        ranks = Ranks(RankHandshake("127.0.0.1:0", Identity(), 2, RELEASE), on_end)
        on_end.callback(ranks.door.close)
        slow = ranks.raw()
        slow.sendall((4000).to_bytes(4, "big"))
        slow.settimeout(0.2)  # between two bytes
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            try:
                slow.sendall(b"\0")
                assert slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            return
        pytest.fail("it may go on for ever")


def test_one_connection_of_a_rank_waits(ranks: Ranks) -> None:
    """While nobody gathers, a newer connection of a rank replaces the older one, and one that has ended is closed."""
    alive = [ranks.raw(INTRODUCTION) for _ in range(5)]  # they are let in by threads of their own, in any order
    while len(alive) > 1:
        ended, _, _ = select.select(alive, [], [], SECONDS)
        assert ended
        for each in ended:
            assert each.recv(1) == b""
            alive.remove(each)
    (newest,) = alive
    assert list(ranks.door._waiting) == [0]
    newest.shutdown(socket.SHUT_WR)
    assert newest.recv(1) == b"", "the door closes its side, too"


def test_the_door_outlives_a_lack_of_descriptors(ranks: Ranks) -> None:
    """What cannot be accepted now is accepted later."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    address = ranks.door.address.split(":")
    waiting = [socket.socket() for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with structlog.testing.capture_logs() as lines:
            for each in waiting:
                each.settimeout(SECONDS)
                each.connect((address[0], int(address[1])))
                each.sendall((2).to_bytes(4, "big") + b"{}")
            wait_until(
                lambda: "trainers_not_accepted" in {line["event"] for line in list(lines)}, "one is not accepted"
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for each in waiting:
        assert each.recv(4) != b""
        each.close()


def test_strangers_do_not_fill_the_log(ranks: Ranks) -> None:
    """Refusals of a kind are one line in ten seconds, whatever the strangers call themselves."""
    with structlog.testing.capture_logs() as lines:
        for number in range(20):
            with pytest.raises(RefusedError):
                ranks.dial(0, release=f"{number}.0")
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["trainer_refused"]


@pytest.fixture
def certs(tmp_path: Path) -> Folder:
    """Makes a folder with tokens."""
    return Folder.make(tmp_path / "certs", farm=Role.TRAINER, other=Role.TRAINER)


@pytest.fixture
def known(certs: Folder, tmp_path: Path) -> Iterator[Ranks]:
    """Dials a door that asks for tokens."""
    access = Access(certs.path / TOKENS, poll_seconds=0.0)
    door = RankHandshake("127.0.0.1:0", Identity(access, audit=Audit(tmp_path)), 2, RELEASE)
    with ExitStack() as on_end:
        yield Ranks(door, on_end, certs.path / "farm.token")
    door.close()


@pytest.mark.parametrize("roles", [{"other": Role.TRAINER}, {"farm": Role.ACTOR}], ids=["removed", "demoted"])
def test_a_revoked_token_ends_the_ranks(known: Ranks, certs: Folder, tmp_path: Path, roles: dict[str, Role]) -> None:
    """The connections of ranks that train end when their token loses its role, and the audit has it."""
    gathering, found = known.gather("revoked")
    join(known.arrive(0), known.arrive(1), gathering)
    assert have_come(found)
    certs.write_tokens(**roles)
    for each in known.connections.values():
        each.settimeout(SECONDS)
        with pytest.raises(EOFError):
            each.recv_bytes(1)
    lines = [json.loads(line) for line in (tmp_path / AUDIT_FILE).read_text().splitlines()]
    assert [(line["action"], line["principal"], line["via"], line["rank"]) for line in lines] == [
        ("revoke", "farm", "token_file", rank) for rank in (0, 1)
    ]


def test_a_revoked_token_ends_a_rank_that_waits(known: Ranks, certs: Folder) -> None:
    """A rank that waits for the others is sent away, and its next introduction is refused."""
    errors: list[str] = []

    def wait() -> None:
        try:
            known.dial(0)
        except RefusedError as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait)
    with structlog.testing.capture_logs() as lines:
        waiting.start()
        wait_until(lambda: any(line["event"] == "trainer_joined" for line in lines), "the rank waits")
        certs.write_tokens(other=Role.TRAINER)
        waiting.join(SECONDS)
    assert "the token is unknown, was revoked, or has expired" in errors[0]
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["trainer_revoked", "trainer_refused"]


def test_closing_ends_the_wait(ranks: Ranks) -> None:
    """A wait ends with the door."""
    gathering, found = ranks.gather("five")
    ranks.door.close()
    gathering.join(SECONDS)
    assert found == [None]
