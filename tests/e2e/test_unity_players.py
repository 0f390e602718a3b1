"""What goes wrong with players of Unity costs what it must, is said in one line, and training goes on."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from actor_client.exits import ExitCode
from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.unity import Gateway, run_for_any_behavior
from tests.players.cli import main as play
from tests.players.faults import EXIT_CODE

FAULT_AT = ("--fault-at", "400")
HOW = {
    "exit": f"code {EXIT_CODE}",
    "segmentation-fault": "SIGSEGV",
    "hang": "DecisionRequester",
}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnerProcess]:
    """One learner for all: each test has a gateway of its own."""
    folder = tmp_path_factory.mktemp("unity")
    with processes_in(folder) as started:
        process = started.learner(run_for_any_behavior(folder))
        yield process
        assert process.is_running, process.said()


def _ends(learner: LearnerProcess, gateway: Gateway) -> list[dict[str, object]]:
    """Ends a gateway and returns its books, which balance."""
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert "wrong reply" not in gateway.players_said()
    return [dict(books) for books in gateway.books()]


@pytest.mark.parametrize("fault", sorted(HOW))
def test_only_the_player_that_failed_starts_again(
    learner: LearnerProcess, processes: Processes, tmp_path: Path, fault: str
) -> None:
    """Its open rows are dropped, counted by reason, and the other player plays on; the log says how it failed."""
    options = ("--timeout-wait", "6") if fault == "hang" else ()
    faulty = ("--fault", fault, *FAULT_AT, "--fault-once", str(tmp_path / "once"))
    gateway = Gateway(processes, learner.address, *options, play=faulty, players=2, name=fault)
    child = gateway.child
    learner.wait_for(lambda: len(child.events("player_connected")) == 3, "a player starts again", child)
    restarts, before = child.events("player_restarts"), learner.behavior("CartPole").version
    learner.wait_for_version("CartPole", before + 3, child)
    connected = [event["worker"] for event in child.events("player_connected")]
    assert [HOW[fault] in event["reason"] for event in restarts] == [True], restarts
    assert sorted(connected) == sorted([0, 1, restarts[0]["worker"]])
    (books,) = _ends(learner, gateway)
    assert set(books["discarded"]) <= {"env_error", "shutdown"}  # type: ignore[call-overload]
    if fault != "hang":  # while it hung its rows aged with the other's updates, and were cut and sent
        assert books["discarded"].get("env_error", 0) > 0, books  # type: ignore[attr-defined]


def test_a_player_that_fails_too_often_ends_the_actor(learner: LearnerProcess, processes: Processes) -> None:
    """One line says how it failed, and why it is not started again."""
    options = ("--max-lifetime-restarts", "0")
    gateway = Gateway(processes, learner.address, *options, play=("--fault", "exit"), name="too-often")
    line = gateway.child.fails_with(ExitCode.ENVIRONMENT_FAILED)
    assert f"code {EXIT_CODE}" in line
    assert "max_lifetime_restarts is 0" in line


def test_a_player_of_another_protocol_is_told_so(learner: LearnerProcess, processes: Processes) -> None:
    """Both versions are named, and it is not started again and again."""
    gateway = Gateway(processes, learner.address, play=("--api-version", "2.0.0"), name="version")
    line = gateway.child.fails_with(ExitCode.ENVIRONMENT_FAILED)
    assert "2.0.0" in line
    assert "1.5.0" in line
    assert "refused" in gateway.players_said()


def test_damaged_messages_are_said_and_cost_little(learner: LearnerProcess, processes: Processes) -> None:
    """NaN names behavior and agent, 50 MB are accepted, and the same player plays on through all of it."""
    faults = ("nan-reward", "nan-observation", "infinite-group-reward", "long-mask", "bad-side-channel", "ballast")
    options = [word for fault in faults for word in ("--fault", fault)]
    before = learner.behavior("CartPole").version
    gateway = Gateway(processes, learner.address, play=(*options, *FAULT_AT), name="damaged")
    learner.wait_for_version("CartPole", before + 6, gateway.child)
    assert len(gateway.child.events("player_connected")) == 1
    _ends(learner, gateway)
    said = [line for line in gateway.child.err().splitlines() if "nan" in line.lower()]
    assert said, gateway.child.said()
    assert any("CartPole" in line and "agent" in line for line in said), said


def test_a_message_that_cannot_be_read_names_what_is_wrong(learner: LearnerProcess, processes: Processes) -> None:
    """An observation shorter than its shape ends the player, with behavior and numbers in one line."""
    options = ("--max-lifetime-restarts", "0")
    play_options = ("--task", "hybrid", "--fault", "short-observation", *FAULT_AT)
    gateway = Gateway(processes, learner.address, *options, play=play_options, name="short")
    assert "Hybrid" in gateway.child.fails_with(ExitCode.ENVIRONMENT_FAILED)


def test_a_port_in_use_is_said_before_anything_starts(learner: LearnerProcess, processes: Processes) -> None:
    """One line names the port."""
    first = Gateway(processes, learner.address, name="first")
    wait_until(lambda: first.child.events("listening"), "it listens", said=first.child.said)
    options = ["--learner", learner.address, "--base-port", str(first.port), "--env", "nothing"]
    second = processes.python("second", "-m", "actor_client", "unity", *options)
    line = second.fails_with(ExitCode.PORT_IN_USE)
    assert str(first.port) in line
    _ends(learner, first)


def test_a_build_that_is_not_there_is_said(learner: LearnerProcess, processes: Processes, tmp_path: Path) -> None:
    """One line names what was looked for."""
    options = ["--learner", learner.address, "--env", str(tmp_path / "Missing"), "--base-port", "31990"]
    child = processes.python("missing", "-m", "actor_client", "unity", *options)
    assert "Missing" in child.fails_with(ExitCode.UNKNOWN_ENVIRONMENT)


def test_an_editor_may_stop_and_play_again(learner: LearnerProcess, processes: Processes) -> None:
    """Without a build it waits, says so, and takes one life of the editor after the other."""
    gateway = Gateway(processes, learner.address, play=None, name="editor")
    child: Child = gateway.child
    wait_until(lambda: child.events("waiting_for_editor"), "it says that it waits", said=child.said)
    for _ in range(2):
        assert play(["--mlagents-port", str(gateway.port), "--task", "comers", "--decisions", "600"]) == 0
    assert child.is_running, child.said()
    assert len(child.events("player_connected")) == 2
    (books,) = _ends(learner, gateway)
    assert int(str(books["produced"])) > 0
    assert not child.events("player_restarts")


def test_ports_listen_at_once(processes: Processes) -> None:
    """Also without a learner: a player that calls now is not lost, but waits."""
    gateway = Gateway(processes, "127.0.0.1:1", play=None, name="early")

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", gateway.port)) == 0

    wait_until(listens, "the port listens", seconds=5.0, said=gateway.child.said)
