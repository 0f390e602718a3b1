"""Tests the command lines of the two child processes."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from actor_client.cli import build_parser as build_actor_parser
from actor_client.unity.dropin import commands
from actor_client.unity.dropin.addresses import LearnerAddress
from actor_client.unity.dropin.commands import StartPlan, make_plan
from actor_client.unity.dropin.exits import DropInError
from actor_client.unity.dropin.flags import Given, parse
from learner.cli.cli import main as learner_main
from learner.shared.exits import ExitCode

HERE = LearnerAddress("127.0.0.1:50051", "127.0.0.1:50051", 50051, is_usual=True, is_shared=False)
SHARED = LearnerAddress("0.0.0.0:50051", "127.0.0.1:50051", 50051, is_usual=True, is_shared=True)
RUN = """
behaviors: {Ball: {trainer_type: ppo}}
env_settings: {env_path: Build, num_envs: 3, base_port: 6000, env_args: [--level, "2"], timeout_wait: 7}
engine_settings: {no_graphics: true}
checkpoint_settings: {run_id: ball, results_dir: there}
"""


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the learner's check of the run file without a process."""

    def run(command: list[str], **_: object) -> SimpleNamespace:
        said, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(said), redirect_stderr(errors):
            code = learner_main(command[3:])
        return SimpleNamespace(returncode=code, stdout=said.getvalue(), stderr=errors.getvalue())

    monkeypatch.setattr(
        commands, "subprocess", SimpleNamespace(run=run, DEVNULL=None, TimeoutExpired=subprocess.TimeoutExpired)
    )


def _planned(folder: Path, *arguments: str, run: str = RUN) -> tuple[Given, StartPlan]:
    path = folder / "run.yaml"
    path.write_text(run)
    given = parse([str(path), *arguments])
    return given, make_plan(given)


def test_the_run_file_tells_the_gateway(tmp_path: Path) -> None:
    """The gateway gets everything that the run file says of its players, as flags."""
    given, plan = _planned(tmp_path)
    assert plan.folder == Path("there/ball")
    words = commands.gateway(given, plan, HERE, tmp_path / "error")
    assert words[:4] == [sys.executable, "-m", "actor_client", "unity"]
    told = vars(build_actor_parser().parse_args(words[3:]))
    assert told["env"] == "Build"
    assert (told["base_port"], told["num_envs"], told["timeout_wait"]) == ("6000", "3", "7")
    assert told["no_graphics"] is True
    assert told["env_args"] == ["--level", "2"]
    assert told["log_dir"] == "there/ball/run_logs"
    assert told["learner"] == "127.0.0.1:50051"
    assert "insecure" not in told
    assert told["error_file"] == str(tmp_path / "error")
    assert float(told["quiet_seconds"]) > 0


def test_flags_win_over_the_run_file(tmp_path: Path) -> None:
    """Flags override the run file, even with default values."""
    given, plan = _planned(tmp_path, "--num-envs=1", "--base-port", "5005", "--env-args", "--level", "9")
    told = vars(build_actor_parser().parse_args(commands.gateway(given, plan, HERE, tmp_path / "error")[3:]))
    assert (told["base_port"], told["num_envs"], told["env_args"]) == ("5005", "1", ["--level", "9"])
    assert commands.learner(given, plan, HERE)[-3:] == ["--env-args", "--level", "9"]


def test_the_editor_has_a_port_of_its_own(tmp_path: Path) -> None:
    """Without a build the gateway waits on the editor's port and restarts nothing."""
    given, plan = _planned(tmp_path, run="behaviors: {Ball: {trainer_type: ppo}}")
    words = commands.gateway(given, plan, HERE, tmp_path / "error")
    assert not [word for word in words if word.startswith(("--env", "--base-port", "--num-envs", "--timeout"))]


@pytest.mark.parametrize(
    ("said", "added"),
    [
        ([], "--address,--log-format"),
        (["--log-format=json"], "--address"),
        (["--address=127.0.0.1:50051", "--log-format=json"], ""),
    ],
)
def test_the_learner_knows_which_flags_the_user_did_not_type(tmp_path: Path, said: list[str], added: str) -> None:
    """They are named to the learner, which advises no flag that the user never gave."""
    given, plan = _planned(tmp_path, *said)
    assert f"--drop-in={added}" in commands.learner(given, plan, HERE)


@pytest.mark.parametrize(("said", "wanted"), [([], "mlagents"), (["--log-format=json"], "json")])
def test_the_console_is_that_of_mlagents_unless_told(tmp_path: Path, said: list[str], wanted: str) -> None:
    """The learner prints ML-Agents' lines by default; with JSON logs both print JSON."""
    given, plan = _planned(tmp_path, *said)
    formats = [word for word in commands.learner(given, plan, HERE) if word.startswith("--log-format")]
    assert formats == [f"--log-format={wanted}"]
    assert ("--log-format=json" in commands.gateway(given, plan, HERE, tmp_path / "error")) == (wanted == "json")


def test_with_certificates_nothing_is_plain_text(tmp_path: Path) -> None:
    """The learner gets its folder and the gateway its own; neither is told to accept plain text, nor are others."""
    given, plan = _planned(tmp_path, "--set=rollcast.tls_cert=a", "--set=rollcast.tls_key=b", "--actor-certs=mine")
    assert plan.has_tls
    words = commands.gateway(given, plan, SHARED, tmp_path / "error")
    assert "--certs=mine" in words
    assert "--insecure" not in words
    assert commands.another_machine(plan, HERE).endswith("--address 0.0.0.0:50051")
    assert commands.another_machine(plan, SHARED).endswith(":50051 --certs certs --allow-env-args=--level")
    commands.require_identity(given, plan)
    with pytest.raises(DropInError, match="give --actor-certs DIR"):
        commands.require_identity(parse([]), plan)
    assert "--certs=theirs" in parse(["--certs=theirs"]).learner
    assert parse(["--certs=theirs"]).gateway == ()


def test_a_run_file_with_faults_is_the_learners_to_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of the run file are printed by the learner, with its exit code."""
    with pytest.raises(DropInError) as caught:
        _planned(tmp_path, run="behaviors: {Ball: {max_stesp: 3}}")
    assert caught.value.exit_code == ExitCode.RUN_FILE
    assert caught.value.message == ""
    assert "did you mean 'max_steps'?" in capsys.readouterr().err


def test_a_check_that_hangs_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that does not end, as on a disk that does not answer, ends the command with a line instead of a traceback."""

    def hang(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(
        commands, "subprocess", SimpleNamespace(run=hang, DEVNULL=None, TimeoutExpired=subprocess.TimeoutExpired)
    )
    with pytest.raises(DropInError, match="took longer than 120 s"):
        make_plan(parse([str(tmp_path / "run.yaml")]))
