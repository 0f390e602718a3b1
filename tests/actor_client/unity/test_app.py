"""Tests the command with a real learner and real players."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from actor_client.cli import main
from actor_client.exits import ExitCode
from tests.actor_client.onnx_policies import linear_policy
from tests.actor_client.real_learner import RealLearner
from tests.actor_client.scripted import wait_until
from tests.actor_client.unity.players.programs import SECONDS, eventually, free_port, is_running, script
from tests.e2e.unity import free_ports
from tests.tools.players.build import make_build


class Actor:
    """The command as a process that logs to a file.

    Attributes:
        port: Of its first player.
        process: The command.
    """

    def __init__(self, folder: Path, learner: str, *arguments: str, players: int = 1) -> None:
        self.port = free_ports(players)
        self._log = folder / "actor.jsonl"
        words = [
            "--learner",
            learner,
            "--base-port",
            str(self.port),
            "--metrics-address",
            "off",
            "--log-format",
            "json",
        ]
        command = [sys.executable, "-m", "actor_client", "unity", *words, *arguments]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, cwd=folder)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Returns what it has logged under a name."""
        lines = self._log.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [event for event in found if event["event"] == name]

    def has(self, name: str, number: int = 1) -> None:
        """Waits until it has logged an event this many times."""
        eventually(lambda: len(self.events(name)) >= number or self.process.poll() is not None, name)
        assert len(self.events(name)) >= number, self._log.read_text()

    def pids(self) -> list[int]:
        """Returns the process ids of its first players."""
        self.has("players_started")
        return list(self.events("players_started")[0]["pids"])

    def end(self) -> int:
        """Asks it to end and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


@contextmanager
def started(folder: Path, learner: str, *arguments: str, players: int = 1) -> Iterator[Actor]:
    """Runs the command and kills what a failed test leaves."""
    actor = Actor(folder, learner, *arguments, players=players)
    try:
        yield actor
    finally:
        left = actor.events("players_started")
        actor.process.kill()
        actor.process.wait()
        for pid in [pid for event in left for pid in event["pids"]]:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


def plays(learner: RealLearner) -> None:
    """Publishes a policy as soon as a behavior is declared."""
    wait_until(lambda: learner.learner.behaviors.by_index(0) is not None)
    if not learner.learner.ledger.books("CartPole").trained:
        learner.publish(linear_policy(0))


def trains(learner: RealLearner, steps: int) -> None:
    """Publishes a policy as soon as a behavior is declared, and waits until more steps are trained."""
    plays(learner)
    before = learner.learner.ledger.books("CartPole").trained
    eventually(lambda: learner.learner.ledger.books("CartPole").trained > before + steps, "trained steps")


@pytest.mark.slow
def test_players_train_until_a_signal_and_nothing_is_left(tmp_path: Path) -> None:
    """After a signal the players quit by themselves, and every step has one outcome."""
    build = make_build(tmp_path / "build")
    with RealLearner() as learner:
        with started(tmp_path, learner.address, "--env", str(build), "--num-envs", "2", players=2) as actor:
            pids = actor.pids()
            trains(learner, 500)
            assert actor.end() == ExitCode.OK
            assert not any(map(is_running, pids))
            (books,) = actor.events("books")
        assert not learner.learner.sessions.live()
        assert learner.learner.ledger.books("CartPole").balanced
        assert (books["unacked"], books["open"], books["discarded"]) == (0, 0, {})
    logs = sorted((tmp_path / "results").glob("*/run_logs/*"))
    assert [log.name for log in logs] == ["Player-0.log", "Player-1.log"]
    for log in logs:
        assert "400" in log.read_text()  # told so in the middle of its scene, or during its greeting


@pytest.mark.slow
def test_a_player_that_fails_again_and_again_ends_the_actor(tmp_path: Path) -> None:
    """A player that always fails ends the actor with code 40; the learner is notified."""
    build = make_build(tmp_path / "build", "--fault", "exit", "--fault-at", "50")
    limits = ("--max-lifetime-restarts", "0", "--num-envs", "2")
    with RealLearner() as learner:
        with started(tmp_path, learner.address, "--env", str(build), *limits, players=2) as actor:
            pids = actor.pids()
            plays(learner)  # both may fail before a step of theirs is trained
            assert actor.process.wait(SECONDS) == ExitCode.ENVIRONMENT_FAILED
            assert not any(map(is_running, pids))
            (end,) = actor.events("actor_ended")
        assert "ended with exit code 7" in end["error"]
        assert "max_lifetime_restarts is 0" in end["error"]
        assert learner.learner.ledger.books("CartPole").balanced


@pytest.mark.slow
def test_the_editor_may_stop_and_play_again(tmp_path: Path) -> None:
    """Stop and Play in the editor continue in the same session; no player is started."""
    play = [sys.executable, "-m", "tests.tools.players", "--decisions", "400", "--wait", str(SECONDS)]
    with RealLearner() as learner:
        with started(tmp_path, learner.address) as actor:
            for number in (1, 2):
                player = subprocess.Popen([*play, "--mlagents-port", str(actor.port)], stdout=subprocess.DEVNULL)
                trains(learner, 300)
                assert player.wait(SECONDS) == 0
                actor.has("player_left", number)
                assert actor.process.poll() is None
            assert not actor.events("players_started")
            assert len(actor.events("connected")) == 1
            assert actor.end() == ExitCode.OK
        assert learner.learner.ledger.books("CartPole").balanced


@pytest.mark.slow
@pytest.mark.parametrize(("signals", "code"), [(1, ExitCode.OK), (2, ExitCode.INTERRUPTED)])
def test_stubborn_players_are_ended(tmp_path: Path, signals: int, code: ExitCode) -> None:
    """Players that ignore signals are killed with what they started, after a while or by a second signal."""
    pids = tmp_path / "pids"
    body = f"trap '' TERM\nsleep 600 &\necho $! > {pids}.new && mv {pids}.new {pids}\nwhile :; do sleep 0.1; done"
    build = script(tmp_path, body)
    with RealLearner() as learner, started(tmp_path, learner.address, "--env", str(build)) as actor:
        (pid,) = actor.pids()
        eventually(pids.exists, "the player's own process")
        actor.process.send_signal(signal.SIGTERM)
        if signals == 2:
            eventually(lambda: not learner.learner.sessions.live(), "the end of the session")
            actor.process.send_signal(signal.SIGTERM)
        assert actor.process.wait(SECONDS) == code
        eventually(lambda: not is_running(pid) and not is_running(int(pids.read_text())), "their end")


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the command in a folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--env", "no/such/Build"), ExitCode.UNKNOWN_ENVIRONMENT, "there is no such build"),
        (("--env", "."), ExitCode.UNKNOWN_ENVIRONMENT, "is a folder"),
        (("--env", "plain"), ExitCode.UNKNOWN_ENVIRONMENT, "chmod +x"),
        (("--num-envs", "2"), ExitCode.USAGE, "num_envs 2 needs a build"),
        (("--side-channel", "no_such:thing"), ExitCode.USAGE, "no_such:thing"),
        (("--connect-timeout", "0.3"), ExitCode.UNREACHABLE, "did not answer within 0.3 s"),
    ],
)
def test_faults_of_the_user_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: ExitCode,
    text: str,
) -> None:
    """An error of the user is one line with value, reason and next step, and an exit code."""
    (tmp_path / "plain").write_text("")
    words = ["--base-port", str(free_port()), "--learner", "127.0.0.1:1", "--metrics-address", "off"]
    assert main(["unity", *words, *arguments]) == code
    errors = capsys.readouterr().err
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert text in line
    assert "Traceback" not in errors


@pytest.mark.usefixtures("_here")
def test_a_run_in_lockstep_is_refused_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If the learner uses lock-step, the gateway ends with the reason before any player starts."""
    build = script(tmp_path, "touch started")
    with RealLearner(lockstep={"actors": 1}) as learner:
        words = ["--base-port", str(free_port()), "--learner", learner.address, "--metrics-address", "off"]
        assert main(["unity", *words, "--env", str(build)]) == ExitCode.REFUSED
    assert not (tmp_path / "started").exists()
    assert "lock-step" in capsys.readouterr().err
