"""Tests the command line: answers without torch, and refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rollcast.extras import install
from rollcast.limits import PROTOCOL_REVISION

from learner.cli.cli import main
from learner.shared.exits import ExitCode
from tests.learner.start.run_folders import trained_run

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ("serve", "check-config", "status", "pause", "resume", "save", "drain", "healthcheck", "release", "set")
OPERATORS = COMMANDS[2:-2]
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
def test_a_learner_that_does_not_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    """Every operator's command fails with the address that it tried, or says what to give without one."""
    for arguments, said in (
        (["--control", NOBODY], f"error: no learner answers at {NOBODY}; "),
        (["--results-dir", str(tmp_path)], f"error: no running learner found in {tmp_path}"),
    ):
        assert main([command, *arguments]) == ExitCode.UNREACHABLE
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        assert line.startswith(said)


def test_no_error_moves_the_cursor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Control characters in messages are escaped."""
    assert main(["check-config", str(tmp_path / "\x1b[2Jempty\n.yaml")]) == ExitCode.RUN_FILE
    (line,) = capsys.readouterr().err.splitlines()
    assert "\\x1b[2Jempty\\n.yaml" in line
    assert line.isprintable()


def _python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_missing_extra_is_named(run_file: Path) -> None:
    """A missing extra is one line that says what to install."""
    for module, commands in (
        ("torch", [["serve"], ["serve", "--set", "rollcast.trainer_process=true"]]),
        ("yaml", [["serve"], ["check-config"], ["compare"]]),
    ):
        lines = [[command, str(run_file), *options] for command, *options in commands]
        result = _python(
            f"import sys; sys.modules[{module!r}] = None\nfrom learner.cli.cli import main\n"
            f"print(*(main(line) for line in {lines!r}))"
        )
        assert result.stdout.split() == [str(int(ExitCode.MISSING_EXTRA))] * len(commands)
        hint = install("learner")
        assert result.stderr.splitlines() == [f"error: {line[0]} needs the module {module!r}; {hint}" for line in lines]


@pytest.mark.slow
def test_small_commands_load_nothing_heavy(run_file: Path) -> None:
    """Small commands import neither torch nor, the smallest, the libraries of settings and of the wire."""
    folder = run_file.parent
    trained_run(folder, "run", {"Walker": [1.0, 2.0]})
    light, wire = ["torch", "tensorboard", "onnx", "numpy", "grpc", "pydantic"], ["torch", "tensorboard", "onnx"]
    steps: list[tuple[list[str], list[str]]] = [
        (["--help"], light),
        (["serve", "--help"], light),
        (["runs", "--results-dir", str(folder)], light),
        (["compare", "--help"], light),
        (["compare", "run", "--results-dir", str(folder), "--svg", str(folder / "a.svg")], [*wire, "grpc"]),
        (["check-config", str(run_file), "--can-start", "--results-dir", str(folder / "none")], wire),
        (["--version"], wire),
        (["status", "--control", NOBODY], wire),
        (["healthcheck", "--control", NOBODY], wire),
    ]
    program = (
        "import contextlib, sys\nfrom learner.cli.cli import main\n"
        f"for line, heavy in {steps!r}:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main(line)\n"
        "    found = set(heavy) & set(sys.modules)\n"
        "    assert not found, (line, found)\n"
    )
    result = _python(program)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_operators_signals_end_nothing_from_the_first_moment() -> None:
    """SIGUSR1 and SIGUSR2 are ignored from the start of the process."""
    result = _python(
        "import os, signal, sys, learner.cli.cli\n"
        "def early(_prog):\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    os.kill(os.getpid(), signal.SIGUSR2)\n"
        "    sys.exit(7)\n"
        "learner.cli.cli.build_parser = early\n"
        "learner.cli.cli.main(['serve'])"
    )
    assert result.returncode == 7, result.stderr


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_a_run_file_behind_resume(capsys: pytest.CaptureFixture[str], run_file: Path, command: str) -> None:
    """A file name after --resume is an error that says where it belongs."""
    assert main([command, "--resume", str(run_file)]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "write the run file before --resume, or use --resume=auto" in line


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [
        ("learner --version", "stdout", 0),
        ("actor_client --version", "stdout", 0),
        ("learner status --no", "stderr", 10),
    ],
)
def test_a_reader_that_leaves(command: str, closed: str, code: int, unbuffered: str) -> None:
    """`... | head` ends without an error, and an error that nobody reads keeps its code."""
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT, check=False, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writing if closed == "stdout" else subprocess.PIPE,
        stderr=writing if closed == "stderr" else subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    assert (result.returncode, result.stdout or b"", result.stderr or b"") == (code, b"", b"")


@pytest.mark.slow
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
