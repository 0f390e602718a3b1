"""Tests the command line: answers without torch, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rollcast.limits import PROTOCOL_REVISION

from learner.cli import main
from learner.common.exits import ExitCode

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("serve", "check-config", "status", "pause", "resume", "save", "drain", "healthcheck", "release")
OPERATORS = COMMANDS[2:-1]
NOBODY = "127.0.0.1:1"


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """Returns a run file with one behavior."""
    path = tmp_path / "run.yaml"
    path.write_text(
        "behaviors:\n  Walker:\n    trainer_type: ppo\n    max_steps: 100\n    hyperparameters:\n      buffer_size: 2000\n"
    )
    return path


def test_help_names_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Help has each command and exit code."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert all(f"\n    {command}" in said for command in COMMANDS)
    assert all(f"{code.value:3d}  {code.help}" in said for code in ExitCode)


def test_no_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A call without a command prints help and fails."""
    assert main([]) == ExitCode.USAGE
    assert "rollcast-learner" in capsys.readouterr().out


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    """The version has those of dependencies and of the protocol."""
    assert main(["--version"]) == 0
    said = capsys.readouterr().out
    assert f"protocol {PROTOCOL_REVISION}" in said
    assert all(f"  {package} " in said for package in ("grpcio", "torch", "onnxruntime"))


@pytest.mark.parametrize("arguments", [["serv"], ["serve", "--no-such-flag"], ["status", "--control"]])
def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """A wrong command line is one line with Rollcast's exit code."""
    assert main(arguments) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "--help" in line


def test_check_config_shows_values_and_sources(capsys: pytest.CaptureFixture[str], run_file: Path) -> None:
    """Each value has its source; flags and --set override the file."""
    arguments = ["check-config", str(run_file), "--seed", "5", "--set", "behaviors.Walker.max_steps=7"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    lines = {line.split("#")[0].strip(): line.rpartition("#")[2].strip() for line in said.splitlines() if "#" in line}
    assert lines["seed: 5"] == "--seed"
    assert lines["max_steps: 7"] == "--set"
    assert lines["buffer_size: 2000"] == "yaml"
    assert lines["lease_seconds: 15.0"] == "default"


def test_check_config_as_json(capsys: pytest.CaptureFixture[str], run_file: Path) -> None:
    """JSON output has the bare settings."""
    assert main(["check-config", str(run_file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["behaviors"]["Walker"]["hyperparameters"]["buffer_size"] == 2000


def test_check_config_says_what_is_not_built(capsys: pytest.CaptureFixture[str], run_file: Path) -> None:
    """The settings are shown with what a start would refuse."""
    run_file.write_text(run_file.read_text() + "    self_play: {}\n    reward_signals: {}\n")
    assert main(["check-config", str(run_file)]) == 0
    said = capsys.readouterr()
    assert "swap_steps: 2000" in said.out
    assert "\nserve would refuse: behaviors.Walker.reward_signals: is empty" in said.err


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_all_problems_of_a_run_file_are_listed(
    capsys: pytest.CaptureFixture[str], run_file: Path, command: str
) -> None:
    """All mistakes are listed with lines and suggestions."""
    run_file.write_text("behaviors:\n  Walker:\n    max_stesp: 100\nrollcast:\n  adress: x\n")
    assert main([command, str(run_file)]) == ExitCode.RUN_FILE
    *details, last = capsys.readouterr().err.splitlines()
    assert len(details) == 2
    assert f"{run_file}:3" in details[0]
    assert "did you mean 'max_steps'?" in details[0]
    assert "did you mean 'address'?" in details[1]
    assert last.startswith("error: ")
    assert "(and 1 more)" in last


@pytest.mark.parametrize("command", OPERATORS)
def test_a_learner_that_does_not_answer(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Every operator's command fails with the address that it tried."""
    assert main([command, "--control", NOBODY]) == ExitCode.UNREACHABLE
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"error: no learner answers at {NOBODY}; ")


@pytest.mark.parametrize("command", OPERATORS)
def test_no_learner_to_ask(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    """Without an address and a running learner, the command says what to give."""
    assert main([command, "--results-dir", str(tmp_path)]) == ExitCode.UNREACHABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line
    assert "--control" in line
    assert "rollcast-learner serve" in line


def test_no_error_moves_the_cursor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Control characters in messages are escaped."""
    assert main(["check-config", str(tmp_path / "\x1b[2Jempty\n.yaml")]) == ExitCode.RUN_FILE
    (line,) = capsys.readouterr().err.splitlines()
    assert "\\x1b[2Jempty\\n.yaml" in line
    assert line.isprintable()


def _python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["serve"], "torch"),
        (["serve", "--set", "rollcast.trainer_process=true"], "torch"),
        (["serve"], "yaml"),
        (["check-config"], "yaml"),
    ],
)
def test_a_missing_extra_is_named(run_file: Path, arguments: list[str], module: str) -> None:
    """A missing extra is one line that says what to install."""
    command, *options = arguments
    result = _python(
        f"import sys; sys.modules[{module!r}] = None\nfrom learner.cli import main\n"
        f"sys.exit(main({[command, str(run_file), *options]!r}))"
    )
    assert result.returncode == ExitCode.MISSING_EXTRA, result.stderr
    hint = "pip install 'rollcast[learner]'"
    assert result.stderr.splitlines() == [f"error: {command} needs the module {module!r}; {hint}"]


def test_operators_signals_end_nothing_from_the_first_moment() -> None:
    """SIGUSR1 and SIGUSR2 are ignored from the start of the process."""
    result = _python(
        "import os, signal, sys, learner.cli\n"
        "def early():\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    os.kill(os.getpid(), signal.SIGUSR2)\n"
        "    sys.exit(7)\n"
        "learner.cli.build_parser = early\n"
        "learner.cli.main(['serve'])"
    )
    assert result.returncode == 7, result.stderr


@pytest.mark.parametrize("number", ["-1", "many"])
def test_a_number_of_restarts_that_is_none(capsys: pytest.CaptureFixture[str], number: str) -> None:
    """The line says what is expected."""
    assert main(["serve", "--restarts", number]) == ExitCode.USAGE
    assert f"{number!r} is not a number of restarts: 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_a_run_file_behind_resume(capsys: pytest.CaptureFixture[str], run_file: Path, command: str) -> None:
    """A file name after --resume is an error that says where it belongs."""
    assert main([command, "--resume", str(run_file)]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "write the run file before --resume, or use --resume=auto" in line


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["check-config"], ["status", "--control", NOBODY], ["healthcheck", "--control", NOBODY]],
)
def test_small_commands_need_no_torch(arguments: list[str]) -> None:
    """Status and other small commands do not import torch."""
    result = _python(
        f"import sys\nfrom learner.cli import main\nmain({arguments!r})\nsys.exit(3 if 'torch' in sys.modules else 0)"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("module", ["learner", "actor_client"])
def test_a_reader_that_leaves(module: str, unbuffered: str) -> None:
    """`... | head` ends without an error."""
    command = f"(sleep 0.2; exec {sys.executable} -m {module} --version) | true; echo ${{PIPESTATUS[0]}}"
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    result = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, env=environ)
    assert (result.stdout, result.stderr) == ("0\n", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["--version", "runs", "check-config"])
def test_a_full_disk_behind_the_output(tmp_path: Path, arguments: str, unbuffered: str) -> None:
    """A full disk behind standard output is one line with an exit code."""
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": str(ROOT)}
    (tmp_path / "results").mkdir()
    (tmp_path / "run.yaml").write_text("behaviors:\n  CartPole:\n    trainer_type: ppo\n")
    words = [arguments, *(["run.yaml", "--run-id", "x"] if arguments == "check-config" else [])]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "learner", *words],
            cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environ,
        )  # fmt: skip
    assert result.stderr.startswith("error: the output cannot be written: No space left on device")
    assert len(result.stderr.splitlines()) == 1
    assert result.returncode == ExitCode.NOT_SAVED
