"""Tests that the link works between two processes, and that both notice the other's end."""

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
from learner.link.door import ADDRESS_VARIABLE, Door
from learner.link.ring import RING_BYTES
from learner.link.to_trainers import Experience
from learner.link.wire import Wire
from tests.learner.service.samples import make_chunk

SECONDS = 60.0


class Other:
    """The process at the other end, and this side of the link."""

    def __init__(self, door: Door, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.link = Link()
        self.ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.link.to_front.divert(Answer, self.answers.put)
        connection = door.accept()
        assert connection is not None
        self.wire = Wire(connection, self.link.to_trainers, self.link.to_front, self.ends.put, door.ring())
        self.wire.start()


@contextmanager
def other(ring_bytes: int = RING_BYTES) -> Iterator[Other]:
    """Starts the process."""
    door = Door(ring_bytes)
    command = [sys.executable, "-m", "tests.learner.link.echo"]
    with subprocess.Popen(command, env={**os.environ, **door.environment()}, pass_fds=door.inherited) as process:
        try:
            yield Other(door, process)
        finally:
            process.kill()
            door.close()
    assert not Path(door.environment()[ADDRESS_VARIABLE]).exists()


def test_messages_go_both_ways_in_order() -> None:
    """Messages larger and smaller than a piece arrive in their order, with their arrays."""
    with other() as there:
        for sequence in range(1, 11):
            rows = 3 if sequence % 2 else 100_000
            there.link.to_trainers.send(Experience(0, sequence, make_chunk(rows), "s", 0, 1, 0.5))
        found = [there.answers.get(timeout=SECONDS) for _ in range(10)]
        there.link.to_trainers.send(StopTurns())

        assert [answer.number for answer in found] == list(range(1, 11))
        assert [float(answer.path) for answer in found] == [3.0, 100_000.0] * 5
        assert there.ends.get(timeout=SECONDS) == ""
        assert there.process.wait(SECONDS) == 0


def test_many_messages_go_through_a_small_ring() -> None:
    """Arrays that together fill the ring many times arrive as they were sent; one that is too large goes around it."""
    sizes = [3, 9_000, 20_000, 9_500, 300_000] * 40
    with other(ring_bytes=2**21) as there:
        for sequence, rows in enumerate(sizes, 1):
            there.link.to_trainers.send(Experience(0, sequence, make_chunk(rows), "s", 0, 1, 0.5))
        found = [there.answers.get(timeout=SECONDS) for _ in sizes]
        assert [float(answer.path) for answer in found] == [float(rows) for rows in sizes]


def test_a_writer_that_waits_for_room_ends_with_the_process() -> None:
    """A ring that nobody empties holds up neither the end of the process nor closing."""
    with other(ring_bytes=2**21) as there:
        os.kill(there.process.pid, signal.SIGSTOP)
        for sequence in range(1, 30):
            there.link.to_trainers.send(Experience(0, sequence, make_chunk(20_000), "s", 0, 1, 0.5))
        there.process.kill()
        there.ends.get(timeout=SECONDS)
        there.wire.close(SECONDS)
        assert not there.wire._writer.is_alive()


def test_the_end_of_the_process_is_noticed() -> None:
    """A killed process is an end of the connection; later messages do no harm."""
    with other() as there:
        there.process.kill()
        there.ends.get(timeout=SECONDS)
        there.link.to_trainers.send(Request(1, RequestKind.SAVE))
        there.wire.close(SECONDS)


def test_the_end_of_the_front_is_noticed() -> None:
    """The process ends when the front's connection closes."""
    with other() as there:
        there.wire.close(SECONDS)
        assert there.process.wait(SECONDS) == 0
        assert there.ends.get(timeout=SECONDS) == ""


def test_a_stranger_does_not_come_in() -> None:
    """A process without the key is sent away, and the right one still comes in."""
    door = Door()
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
    door = Door()
    folder = Path(door.environment()[ADDRESS_VARIABLE]).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    door.close()
    assert not folder.exists()
