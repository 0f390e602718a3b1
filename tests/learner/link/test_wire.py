"""Tests that the link works between two sides, and that both notice the other's end."""

from __future__ import annotations

import os
import queue
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from learner.link.channel import Link
from learner.link.control import Answer, Request, RequestKind, StopTurns
from learner.link.local import ADDRESS_VARIABLE, RING_VARIABLE, LocalListener
from learner.link.ring import RING_BYTES
from learner.link.to_trainers import Experience
from learner.link.wire import Wire
from learner.shared.runfolder.lock import FolderLock
from tests.learner.link import echo
from tests.learner.service.calls.samples import make_chunk

SECONDS = 300.0


class Other:
    """The front's side of a link."""

    def __init__(self, door: LocalListener) -> None:
        self.link = Link()
        self.ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.link.to_front.divert(Answer, self.answers.put)
        connection = door.accept()
        assert connection is not None
        self.wire = Wire(connection, self.link.to_trainers, self.link.to_front, self.ends.put, door.ring())
        self.wire.start()

    def send(self, sequence: int, rows: int) -> None:
        """Sends a chunk."""
        self.link.to_trainers.send(Experience(0, sequence, make_chunk(rows), "s", 0, 1, 0.5))


@contextmanager
def other(ring_bytes: int = RING_BYTES) -> Iterator[tuple[Other, threading.Thread]]:
    """Starts the other side as a thread."""
    door = LocalListener(ring_bytes)
    environ = {**door.environment(), RING_VARIABLE: f"{os.dup(next(iter(door.inherited)))} {ring_bytes}"}
    thread = threading.Thread(target=echo.main, args=(environ,))
    thread.start()
    there = Other(door)
    try:
        yield there, thread
    finally:
        there.wire.close(SECONDS)
        thread.join(SECONDS)
        door.close()
    assert not Path(environ[ADDRESS_VARIABLE]).exists()


def test_many_messages_go_through_a_small_ring() -> None:
    """Arrays that together fill the ring many times arrive in order; one that is too large goes around the ring."""
    sizes = [3, 9_000, 20_000, 9_500, 300_000] * 40
    with other(ring_bytes=2**21) as (there, thread):
        for sequence, rows in enumerate(sizes, 1):
            there.send(sequence, rows)
        found = [there.answers.get(timeout=SECONDS) for _ in sizes]
        assert [answer.number for answer in found] == list(range(1, len(sizes) + 1))
        assert [float(answer.path) for answer in found] == [float(rows) for rows in sizes]
        there.link.to_trainers.send(StopTurns())
        assert there.ends.get(timeout=SECONDS) == ""
        thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.mark.slow
def test_a_writer_that_waits_for_room_ends_with_the_process() -> None:
    """A killed process is an end, also for a writer that waits for room in the ring; later messages do no harm."""
    door = LocalListener(2**21)
    command = [sys.executable, "-m", "tests.learner.link.echo"]
    with subprocess.Popen(command, env={**os.environ, **door.environment()}, pass_fds=door.inherited) as process:
        there = Other(door)
        os.kill(process.pid, signal.SIGSTOP)
        for sequence in range(1, 30):
            there.send(sequence, 20_000)
        process.kill()
        there.ends.get(timeout=SECONDS)
        there.link.to_trainers.send(Request(1, RequestKind.SAVE))
        there.wire.close(SECONDS)
        assert not there.wire._writer.is_alive()
    door.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_message_that_cannot_be_sent_ends_both_sides() -> None:
    """After a message without a form on the wire, a fault of the code, both sides end and none waits for ever."""
    with other() as (there, thread):
        there.link.to_trainers.send(object())  # type: ignore[arg-type]
        there.ends.get(timeout=SECONDS)
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_the_end_of_the_front_is_noticed() -> None:
    """The other side ends when the front's connection closes."""
    with other() as (there, thread):
        there.wire.close(SECONDS)
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert there.ends.get(timeout=SECONDS) == ""


def test_a_stranger_does_not_come_in() -> None:
    """A process without the key is sent away, and the right one still comes in."""
    door = LocalListener()
    accepted: list[object] = []
    waiting = threading.Thread(target=lambda: accepted.append(door.accept()))
    waiting.start()
    address = door.environment()[ADDRESS_VARIABLE]
    with pytest.raises(AuthenticationError):
        Client(address, authkey=b"another key")
    assert not accepted
    door.give_up()
    waiting.join(SECONDS)
    door.close()
    assert accepted == [None]


@pytest.mark.skipif(sys.platform == "win32", reason="a named pipe has no folder")
def test_only_this_user_reaches_the_socket() -> None:
    """The folder of the socket is closed to others."""
    door = LocalListener()
    folder = Path(door.environment()[ADDRESS_VARIABLE]).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    door.close()
    assert not folder.exists()


def test_a_door_and_a_lock_may_be_closed_amid_their_closing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A signal that ends the learner may close them while they are being closed; no descriptor is closed twice."""
    door, lock, real = LocalListener(), FolderLock(tmp_path), os.close

    def close(descriptor: int) -> None:
        monkeypatch.setattr(os, "close", real)
        door.close()
        lock.release()
        real(descriptor)

    for end in (lock.release, door.close):
        monkeypatch.setattr(os, "close", close)
        end()
