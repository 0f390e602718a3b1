"""Tests the command with a real learner."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actor_client.cli import main
from actor_client.exits import ExitCode
from tests.actor_client.real_learner import RealLearner
from tests.actor_client.unity.players.programs import SECONDS, eventually, is_running, script
from tests.ports import reserve_ports


@pytest.mark.slow
@pytest.mark.parametrize(("signals", "code"), [(1, ExitCode.OK), (2, ExitCode.INTERRUPTED)])
def test_stubborn_players_are_ended(tmp_path: Path, signals: int, code: ExitCode) -> None:
    """Players that ignore signals are killed with what they started, after a while or by a second signal."""
    pids = tmp_path / "pids"
    body = f"trap '' TERM\nsleep 600 &\necho $$ $! > {pids}.new && mv {pids}.new {pids}\nwhile :; do sleep 0.1; done"
    words = f"--env {script(tmp_path, body)} --base-port {reserve_ports()} --metrics-address off".split()
    with RealLearner() as learner:
        command = [sys.executable, "-m", "actor_client", "unity", *words, "--learner", learner.address]
        with subprocess.Popen(command, cwd=tmp_path) as process:
            eventually(pids.exists, "the player's own process")
            process.send_signal(signal.SIGTERM)
            if signals == 2:
                eventually(lambda: not learner.learner.sessions.live(), "the end of the session")
                process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == code
    eventually(lambda: not any(map(is_running, map(int, pids.read_text().split()))), "their end")


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
    words = ["--base-port", str(reserve_ports()), "--learner", "127.0.0.1:1", "--metrics-address", "off"]
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
        words = ["--base-port", str(reserve_ports()), "--learner", learner.address, "--metrics-address", "off"]
        assert main(["unity", *words, "--env", str(build)]) == ExitCode.REFUSED
    assert not (tmp_path / "started").exists()
    assert "lock-step" in capsys.readouterr().err
