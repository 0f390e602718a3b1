"""Tests Unity players on two machines that are killed, stopped and disconnected."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.books import by_reason
from tests.e2e.processes import LearnerProcess, Processes
from tests.e2e.unity import Gateway, run_for_any_behavior
from tests.nightly.chaos.namespaces import Namespace, namespaces

NAME = "CartPole"
CUT_SECONDS = 20.0
SETTLED_SECONDS = 12.0
"""Seconds after the cut until a window is full: at 32 KiB a chunk and hundreds of steps per second."""


@pytest.fixture
def machines() -> Iterator[list[Namespace]]:
    """Makes two machines, each with a link to this one."""
    with namespaces(2) as made:
        yield made


def _gateway(processes: Processes, learner: LearnerProcess, machine: Namespace, name: str, players: int) -> Gateway:
    address = f"{machine.host}:{learner.address.rpartition(':')[2]}"
    options = (address, "--insecure", "--timeout-wait", "6")
    play = ("--episodes", str(processes.folder / f"{name}-episodes"))
    return Gateway(processes, *options, play=play, players=players, name=name, inside=machine.inside)


def _episodes(processes: Processes, name: str) -> int:
    return len((processes.folder / f"{name}-episodes").read_text().splitlines())


def test_two_machines_with_three_players(processes: Processes, machines: list[Namespace], tmp_path: Path) -> None:
    """Only open rows of failed players and stale steps of the disconnected gateway are dropped, by reason."""
    options = ("--address", "0.0.0.0:0", "--set", "rollcast.insecure=true")
    learner = processes.learner(run_for_any_behavior(tmp_path), *options)
    near = _gateway(processes, learner, machines[0], "near", 2)
    far = _gateway(processes, learner, machines[1], "far", 1)
    children = near.child, far.child
    learner.wait_for_version(NAME, 3, *children)
    learner.wait_for(lambda: len(near.child.events("player_connected")) == 2, "three players play", *children)
    learner.wait_for(lambda: far.child.events("player_connected"), "three players play", *children)

    killed, stopped = near.child.events("players_started")[0]["pids"]
    os.kill(killed, signal.SIGKILL)
    learner.wait_for(lambda: len(near.child.events("player_connected")) == 3, "it plays again", *children)
    os.kill(stopped, signal.SIGSTOP)
    learner.wait_for(lambda: len(near.child.events("player_connected")) == 4, "it is replaced", *children)
    reasons = [event["reason"] for event in near.child.events("player_restarts")]
    assert len(reasons) == 2, reasons
    assert "SIGKILL" in reasons[0]
    assert "was stopped" in reasons[1]

    before = learner.behavior(NAME).version
    machines[1].cut()
    begun = time.monotonic()
    time.sleep(SETTLED_SECONDS)
    held = _episodes(processes, "far")
    time.sleep(max(0.0, begun + CUT_SECONDS - time.monotonic()))
    assert _episodes(processes, "far") == held, "a gateway whose window is full holds its players"
    machines[1].mend()
    learner.wait_for_version(NAME, before + 3, *children)
    learner.wait_for(lambda: _episodes(processes, "far") > held, "the cut gateway's player plays again", *children)
    assert not far.child.events("player_restarts"), far.child.said()

    for gateway in (near, far):
        gateway.child.signal(signal.SIGTERM)
    for gateway in (near, far):
        assert gateway.child.wait() == 0, gateway.child.said()
        assert "wrong reply" not in gateway.players_said()
    (near_books,), (far_books,) = near.books(), far.books()
    assert set(near_books["discarded"]) <= {"env_error", "shutdown"}, near_books
    assert near_books["discarded"]["env_error"] > 0
    assert not near_books["dropped"]
    # The cut finds the gateway amid a full window or a hold: what it had is trained after it, or given up by its reason.
    assert set(far_books["discarded"]) <= {"shutdown", "stale", "session_lost"}, far_books
    assert set(far_books["dropped"]) <= {"session_lost"}, far_books
    learner.wait_for(lambda: not learner.actor("far").connected, "the gateways have gone")
    assert set(by_reason(learner.behavior(NAME).books.dropped)) <= {"stale"}
