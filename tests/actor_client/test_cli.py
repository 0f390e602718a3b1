"""Tests commands before logging starts."""

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
SECONDS = 300.0
# The value of `--env`: reports the end of the imports, then imports a module that catches every exception.
SWALLOWING = """
import os, sys, time
sys.stderr.write("importing\\n")
sys.stderr.flush()
try:
    time.sleep(300)
except BaseException:
    pass
"""


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash, in which $ACTOR is the command."""
    environ = {**os.environ, "ACTOR": f"{sys.executable} -m actor_client", **environment}
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, env=environ, timeout=SECONDS
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reader"), [("--help", "| head -0"), ("--version", "2>&- >&-"), ("gym --help", ">&-")]
)
def test_help_without_a_reader(arguments: str, reader: str) -> None:
    """Help into a closed output is silent and ends with 0."""
    result = shell(f"$ACTOR {arguments} {reader}; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stderr) == (ExitCode.OK, "")


@pytest.mark.slow
@pytest.mark.parametrize("reader", [">&- 2>&-", "2>/dev/full", "2>&1 | head -0"])
def test_an_error_without_a_reader(reader: str) -> None:
    """An error into a closed output keeps its exit code."""
    result = shell(f"$ACTOR gym --env NoSuch-v0 {reader}; exit ${{PIPESTATUS[0]}}")
    assert result.returncode == ExitCode.UNKNOWN_ENVIRONMENT
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_run_whose_output_is_closed() -> None:
    """An actor without standard output runs."""
    arguments = "--env CartPole-v1 --learner 127.0.0.1:1 --max-wall-seconds 0.5"
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
    """A mistyped flag gets a suggestion and the command's help."""
    assert main(words.split()) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith(said.format("rollcast-actor"))


@pytest.mark.slow
def test_ctrl_c_amid_the_imports_ends_the_actor(tmp_path: Path) -> None:
    """Ctrl-C during the imports ends the actor without a traceback."""
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
    assert process.returncode == 130
    assert errors == ""


def test_a_command_leaves_signals_as_they_were() -> None:
    """A command restores the caller's signal handlers and keeps ignored signals ignored."""
    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == ExitCode.OK
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert main(["--version"]) == ExitCode.OK
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize(("age_seconds", "code"), [(0, ExitCode.OK), (100, ExitCode.STUCK)])
def test_healthcheck_goes_by_the_age_of_the_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_seconds: float, code: ExitCode
) -> None:
    """The health check reads the heartbeat file of the flag or the variable, and needs one of them."""
    path = tmp_path / "heartbeat"
    path.touch()
    os.utime(path, (time.time() - age_seconds, time.time() - age_seconds))
    assert main(["healthcheck", "--heartbeat-file", str(path), "--max-age", "60"]) == code
    monkeypatch.setenv("ROLLCAST_ACTOR_HEARTBEAT_FILE", str(path))
    assert main(["healthcheck", "--max-age", "60"]) == code
    monkeypatch.delenv("ROLLCAST_ACTOR_HEARTBEAT_FILE")
    assert main(["healthcheck"]) == ExitCode.USAGE


@pytest.mark.parametrize("age", ["0", "-1", "nan", "inf", "soon"])
def test_healthcheck_refuses_an_age_that_is_none(tmp_path: Path, age: str) -> None:
    """An invalid age is a wrong command line."""
    assert main(["healthcheck", "--heartbeat-file", str(tmp_path), "--max-age", age]) == ExitCode.USAGE
