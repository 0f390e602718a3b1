"""Tests that faults of Unity players have bounded costs and are reported in one line."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from actor_client.exits import ExitCode
from tests.e2e.processes import LearnerProcess, Processes, processes_in
from tests.e2e.unity import Gateway, run_for_any_behavior
from tests.tools.players.faults import EXIT_CODE

FAULT_AT = ("--fault-at", "400")
HOW = {
    "exit": f"code {EXIT_CODE}",
    "hang": "DecisionRequester",
}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearnerProcess]:
    """Starts one learner for all tests; each test has its own gateway."""
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


def _told(learner: LearnerProcess, actor: str) -> list[str]:
    """Returns what the learner's log says about failed environments of an actor."""
    return [str(line["error"]) for line in learner.events("environment_failed") if line["actor"] == actor]


@pytest.mark.parametrize("fault", sorted(HOW))
def test_only_the_player_that_failed_starts_again(
    learner: LearnerProcess, processes: Processes, tmp_path: Path, fault: str
) -> None:
    """Only the failed player restarts; its open rows are dropped by reason."""
    options = ("--timeout-wait", "6") if fault == "hang" else ()
    faulty = ("--fault", fault, *FAULT_AT, "--fault-once", str(tmp_path / "once"))
    gateway = Gateway(processes, learner.address, *options, play=faulty, players=2, name=fault)
    child = gateway.child
    learner.wait_for(lambda: len(child.events("player_connected")) == 3, "a player starts again", child)
    restarts, before = child.events("player_restarts"), learner.behavior("CartPole").version
    learner.wait_for_version("CartPole", before + 3, child)
    learner.wait_for(lambda: _told(learner, child.name), "the learner says so, too", child)
    assert [HOW[fault] in error for error in _told(learner, child.name)] == [True]
    connected = [event["worker"] for event in child.events("player_connected")]
    assert [HOW[fault] in event["reason"] for event in restarts] == [True], restarts
    assert sorted(connected) == sorted([0, 1, restarts[0]["worker"]])
    (books,) = _ends(learner, gateway)
    assert set(books["discarded"]) <= {"env_error", "shutdown"}  # type: ignore[call-overload]
    if fault != "hang":  # while it hung its rows aged with the other's updates, and were cut and sent
        assert books["discarded"].get("env_error", 0) > 0, books  # type: ignore[attr-defined]


def test_play_may_be_pressed_again(learner: LearnerProcess, processes: Processes) -> None:
    """Without a build the gateway serves an editor that stops or crashes again and again, and says that Play may be pressed again."""
    gateway = Gateway(processes, learner.address, play=None, name="editor")
    child = gateway.child
    learner.wait_for(lambda: child.events("waiting_for_editor"), "an invitation", child)
    (invitation,) = child.events("waiting_for_editor")
    assert "press Play again" in invitation["next"]
    player = ("-m", "tests.tools.players", "--mlagents-port", str(gateway.port), "--wait", "60")
    for number in range(2):
        assert processes.python(f"play-{number}", *player, "--decisions", "300").wait() == 0
    learner.wait_for(lambda: len(child.events("player_left")) == 2, "both have left", child)
    assert all("press Play again" in event["next"] for event in child.events("player_left"))
    crashed = processes.python("play-3", *player)
    learner.wait_for(lambda: len(child.events("player_connected")) == 3, "it plays", child)
    crashed.signal(signal.SIGKILL)
    crashed.wait()
    before = learner.behavior("CartPole").version
    again = processes.python("play-4", *player)
    learner.wait_for_version("CartPole", before + 3, child)
    assert child.is_running
    _ends(learner, gateway)
    assert again.wait() == 0


def test_damaged_messages_are_said_and_cost_little(learner: LearnerProcess, processes: Processes) -> None:
    """NaN is reported by behavior and agent, 50 MB are accepted, and the player continues."""
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
    """A too short observation ends the player with one line that has behavior and numbers."""
    options = ("--max-lifetime-restarts", "0")
    play_options = ("--task", "hybrid", "--fault", "short-observation", *FAULT_AT)
    gateway = Gateway(processes, learner.address, *options, play=play_options, name="short")
    assert "Hybrid" in gateway.child.fails_with(ExitCode.ENVIRONMENT_FAILED)
