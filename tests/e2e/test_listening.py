"""Tests that a learner listens only where SECURITY.md says, however it is started, from its start to its end."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode
from learner.shared.observe.address import read_addresses
from tests.architecture.tree import ROOT
from tests.e2e.preloaded import children_of
from tests.e2e.processes import POLL_SECONDS, Child, LearnerProcess, Processes
from tests.e2e.runs import cartpole, write_run
from tests.ports import reserve_ports

NAME = "CartPole"
_LISTENS = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
"""State of a socket in ``/proc/net``: it listens, or takes datagrams of anyone."""
_MAPPED = "0000000000000000FFFF0000"
"""Before an IPv4 address of a socket of IPv6."""
_ACCEPTS = 0x10000
"""Flag of a Unix socket in ``/proc/net/unix`` that listens."""
_OF_TESTS = "@rollcast-tests-"
"""Of what starts commands as forks, which have it for a moment; see `tests.e2e.preloaded`."""
DOOR = re.compile(r".*/rollcast-[^/]+/front")
"""A socket in a folder of this user alone."""


def named() -> set[str]:
    """Returns the flags of the table of SECURITY.md, by which addresses are named."""
    chapter = (ROOT / "SECURITY.md").read_text(encoding="utf-8").split("\n## What listens\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(--[a-z-]+)`", chapter, re.MULTILINE))


def tree(pid: int) -> Iterator[int]:
    """Yields a process and all that it has started."""
    yield pid
    for child in children_of(pid):
        yield from tree(child)


def sockets(pid: int) -> set[str]:
    """Returns the inodes of a process's sockets; none of one that has ended."""
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.update(re.findall(r"^socket:\[(\d+)\]$", str(descriptor.readlink())))
    return found


def listening(pid: int) -> set[str]:
    """Returns where the tree of a process listens: ``host:port`` in hexadecimal as the system writes it, or the path of a socket."""
    own = set().union(*map(sockets, tree(pid)))
    found = set()
    for family, state in _LISTENS.items():
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in own and fields[3] == state:
                found.add(fields[1].removeprefix(_MAPPED))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        name = " ".join(fields[7:])
        if fields[6] in own and int(fields[3], 16) & _ACCEPTS and not name.startswith(_OF_TESTS):
            found.add(name)
    return found


def as_written(address: str) -> str:
    """Returns an address ``127.0.0.1:port`` as the system writes it."""
    host, port = address.split(":")
    assert host == "127.0.0.1"
    return f"0100007F:{int(port):04X}"


class Watch:
    """Looks all the time where the trees of processes listen. A context manager.

    Attributes:
        seen: Where they listened at any time.
    """

    def __init__(self, *children: Child) -> None:
        self._children = children
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: set[str] = set()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            for child in self._children:
                self.seen |= listening(child.pid)


def addresses(learner: LearnerProcess) -> dict[str, str]:
    """Returns where a learner says that it listens, by the flag that decides it."""
    found = read_addresses(learner.folder)
    assert found is not None
    told = {"--address": found.address, "--http-address": found.http}
    return {flag: as_written(address) for flag, address in told.items()}


def serve(processes: Processes, *options: str, trainers: int = 1, **settings: object) -> LearnerProcess:
    """Starts a learner with all that it may serve."""
    run_file = write_run(
        processes.folder, {NAME: cartpole()}, http_address="127.0.0.1:0", trainers=trainers, **settings
    )
    return processes.learner(run_file, *options)


@pytest.mark.parametrize(
    ("trainers", "options", "settings"),
    [
        (1, (), {}),
        (1, (), {"trainer_process": False}),
        (2, (), {}),
        (3, ("--restarts", "1"), {}),
    ],
    ids=["process", "threads", "ranks", "restarts"],
)
def test_trainers_listen_nowhere(
    processes: Processes, trainers: int, options: tuple[str, ...], settings: dict[str, bool]
) -> None:
    """Apart from the learner's named addresses there is only the door in a folder of this user, until the trainers have come."""
    learner = serve(processes, *options, trainers=trainers, **settings)
    with Watch(learner) as watch:
        actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "3", "--metrics-address", "off")
        learner.wait_for_version(NAME, 2, actor)
        told = addresses(learner)
        assert listening(learner.pid) == set(told.values())
        assert len(list(tree(learner.pid))) > (0 if settings else trainers), "the trainers are looked at, too"
    assert {each for each in watch.seen if not DOOR.fullmatch(each)} == set(told.values())
    assert set(told) < named()
    assert listening(actor.pid) == set()


def test_trainers_of_an_address_listen_for_a_moment(processes: Processes) -> None:
    """Ranks that dial the learner listen for each other until all have met, on the interface that reaches it, for who knows the key."""
    front = f"127.0.0.1:{reserve_ports()}"
    learner = serve(processes, "--trainer-address", front, trainers=2)
    line = ("-m", "learner", "trainer", "--learner", front, "--trainers", "2", "--restarts", "1")
    trainers = [processes.python(f"trainer-{rank}", *line, "--rank", str(rank)) for rank in range(2)]
    with Watch(*trainers) as watch:
        actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
        learner.wait_for_version(NAME, 2, actor, *trainers)
        told = {**addresses(learner), "--trainer-address": as_written(front)}
        assert listening(learner.pid) == set(told.values())
        assert [listening(each.pid) for each in trainers] == [set(), set()]
    assert all(each.startswith("0100007F:") for each in watch.seen)
    assert {*told, "--address"} <= named()


@pytest.mark.parametrize("listen", ["8.8.8.8", "::"])
def test_trainers_do_not_listen_on_public_addresses(processes: Processes, listen: str) -> None:
    """An address that is not private is refused with one line, and the learner waits on."""
    front = f"127.0.0.1:{reserve_ports()}"
    learner = serve(processes, "--trainer-address", front, trainers=2)
    line = ("-m", "learner", "trainer", "--learner", front, "--trainers", "2", "--rank", "0", "--address", listen)
    learner.wait_for(lambda: learner.events("waiting_for_trainers"), "it waits")
    trainer = processes.python("trainer", *line)
    assert "is no address of a private network" in trainer.fails_with(ExitCode.USAGE)
    assert learner.is_running
