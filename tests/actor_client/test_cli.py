"""What a command does before there is a log: closed outputs, and Ctrl+C amid the start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actor_client.cli import main
from actor_client.exits import ExitCode

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
# Ends up in `--env`: says that the imports are over, and then imports something that swallows whatever is raised.
SWALLOWING = """
import os, sys, time
sys.stderr.write("importing\\n")
sys.stderr.flush()
try:
    time.sleep(30)
except BaseException:
    pass
"""


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash, in which $ACTOR is the command."""
    environ = {**os.environ, "ACTOR": f"{sys.executable} -m actor_client", **environment}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, env=environ, timeout=SECONDS
    )


@pytest.mark.parametrize("arguments", ["--help", "--version", "gym --help"])
@pytest.mark.parametrize("reader", ["| head -0", ">&-", "2>&- >&-"])
def test_help_without_a_reader(arguments: str, reader: str) -> None:
    """Whoever does not read what was asked for gets no noise and no error."""
    result = shell(f"$ACTOR {arguments} {reader}; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stderr) == (ExitCode.OK, "")


@pytest.mark.parametrize("reader", [">&-", ">&- 2>&-", "2>/dev/full", "2>&1 | head -0"])
def test_an_error_without_a_reader(reader: str) -> None:
    """The code says what the line would have said."""
    result = shell(f"$ACTOR gym --env NoSuch-v0 {reader}; exit ${{PIPESTATUS[0]}}")
    assert result.returncode == ExitCode.UNKNOWN_ENVIRONMENT
    assert "Traceback" not in result.stderr


def test_a_run_whose_output_is_closed() -> None:
    """An actor that prints nothing does not need standard output."""
    arguments = "--env CartPole-v1 --learner 127.0.0.1:1 --max-seconds 0.5"
    result = shell(f"$ACTOR gym {arguments} >&-")
    assert result.returncode == ExitCode.OK
    assert "Traceback" not in result.stderr
    assert "0.5 s have passed" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("unity --num-env 2", "unrecognized arguments: --num-env 2; did you mean --num-envs?; see {} unity --help"),
        ("gym --metric-address=off", "did you mean --metrics-address?; see {} gym --help"),
        ("gym CartPole-v1", "unrecognized arguments: CartPole-v1; see {} gym --help"),
        ("--versoin", "did you mean --version?; see {} --help"),
    ],
)
def test_a_mistyped_flag_has_a_right_one(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names what is near, and the help of the command that was meant."""
    assert main(words.split()) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(said.format("rollcast-actor"))


def test_ctrl_c_amid_the_imports_ends_the_actor(tmp_path: Path) -> None:
    """Before its signal handlers are in place, Ctrl+C ends it as the system does: nothing swallows it, no traceback."""
    (tmp_path / "pydantic.py").write_text(SWALLOWING)
    process = subprocess.Popen(
        [sys.executable, "-m", "actor_client", "gym", "--env", "CartPole-v1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert errors == ""


def test_a_command_leaves_signals_as_they_were() -> None:
    """A program that calls the command gets its handler back; one that ignores Ctrl+C is not changed."""
    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == ExitCode.OK
    assert signal.getsignal(signal.SIGINT) is before
    script = "import signal; from actor_client.cli import main; main(['--version']); print(signal.getsignal(2))"
    result = shell(f'trap "" INT; {sys.executable} -c "{script}"')
    assert result.stdout.splitlines()[-1] == "1", result.stderr


@pytest.mark.parametrize(("age_seconds", "code"), [(0, ExitCode.OK), (100, ExitCode.STUCK)])
def test_healthcheck_goes_by_the_age_of_the_heartbeat(tmp_path: Path, age_seconds: float, code: ExitCode) -> None:
    """A container's health check needs nothing but the file, and loads nothing heavy."""
    path = tmp_path / "heartbeat"
    path.touch()
    os.utime(path, (time.time() - age_seconds, time.time() - age_seconds))
    assert main(["healthcheck", "--heartbeat-file", str(path), "--max-age", "60"]) == code


@pytest.mark.parametrize("age", ["0", "-1", "nan", "inf", "soon"])
def test_healthcheck_refuses_an_age_that_is_none(tmp_path: Path, age: str) -> None:
    """A wrong command line has its own code, as everywhere."""
    assert main(["healthcheck", "--heartbeat-file", str(tmp_path), "--max-age", age]) == ExitCode.USAGE
