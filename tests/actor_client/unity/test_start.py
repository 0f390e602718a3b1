"""Tests the start of the command: ports listen before anything heavy is imported."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rollcast.extras import install
from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto

from actor_client.cli import main
from actor_client.exits import ExitCode
from actor_client.settings.addresses import Ports
from actor_client.unity.server import FAREWELL, PlayerListener, listening
from tests.actor_client.unity.harness import Caller
from tests.actor_client.unity.players.programs import SECONDS, eventually, script
from tests.ports import reserve_ports

WAITS = """
import os, time
while not os.path.exists({gate!r}):
    time.sleep(0.01)
raise ModuleNotFoundError("enough was seen", name="enough")
"""


SLOW = """
import os, sys, time
while not os.path.exists({gate!r}):
    time.sleep(0.01)
sys.path.remove({folder!r})
del sys.modules["structlog"]
import structlog
"""


COMMAND = [sys.executable, "-m", "actor_client", "unity"]


class Echo:
    """Answers a message with itself."""

    def exchange(self, request: bytes, peer: str = "") -> bytes:
        """Returns the message."""
        return request


def is_open(host: str, port: int) -> bool:
    """Returns whether something listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        return probe.connect_ex((host, port)) == 0


@pytest.mark.slow
def test_ports_listen_before_anything_large_is_imported(tmp_path: Path) -> None:
    """A player that calls while modules are imported is answered later."""
    gate = tmp_path / "gate"
    for module in ("structlog", "pydantic", "numpy", "onnxruntime", "google"):
        (tmp_path / f"{module}.py").write_text(WAITS.format(gate=str(gate)))
    port = reserve_ports(2)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    arguments = [*COMMAND, "--env", "B", "--num-envs", "2", "--base-port", str(port)]
    with subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            for host in ("127.0.0.1", "::1"):
                eventually(lambda: is_open(host, port) and is_open(host, port + 1), "open ports")  # noqa: B023
            with Caller(port) as player:
                answer = player.soon(UnityMessageProto())
                assert process.poll() is None
                assert not answer.done()
                gate.touch()
                # It either came in time for its farewell, or found the port closed.
                assert answer.exception(SECONDS) is not None or answer.result().header.status == 400
            _, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == ExitCode.MISSING_EXTRA
    assert errors.startswith(f"error: this command needs the module 'enough'; {install('actor,unity')}")


@pytest.mark.slow
def test_a_signal_amid_the_imports_ends_it_in_good_order(tmp_path: Path) -> None:
    """A signal during the imports ends the command with code 0, before any player."""
    gate = tmp_path / "gate"
    (tmp_path / "structlog.py").write_text(SLOW.format(gate=str(gate), folder=str(tmp_path)))
    port = reserve_ports()
    arguments = [*COMMAND, "--env", str(script(tmp_path, "exit 0")), "--base-port", str(port), "--metrics-address=off"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: is_open("127.0.0.1", port), "an open port")
            process.send_signal(signal.SIGTERM)
            gate.touch()
            _, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == ExitCode.OK, errors
    assert "SIGTERM" in errors
    assert "Traceback" not in errors


def test_what_ended_it_is_left_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--error-file` gets the error instead of standard error, unless it is no file or cannot be written; success writes none."""
    common = ["unity", "--base-port", str(reserve_ports()), "--metrics-address=off", "--learner=127.0.0.1:1"]
    for name, options in (
        ("early", ["--env", "B", "--max-wall-seconds", "x"]),
        ("late", ["--side-channel", "no:such"]),
    ):
        assert main([*common, *options, "--error-file", str(tmp_path / name)]) == ExitCode.USAGE
        said = (tmp_path / name).read_text()
        assert said
        assert said not in capsys.readouterr().err
        os.mkfifo(tmp_path / f"{name}-pipe")
        for refused in (tmp_path / "nowhere" / name, tmp_path / f"{name}-pipe", os.devnull):
            assert main([*common, *options, "--error-file", str(refused)]) == ExitCode.USAGE
            assert said in capsys.readouterr().err
    assert main([*common, "--max-wall-seconds=0.1", "--error-file", str(tmp_path / "good")]) == ExitCode.OK
    assert not (tmp_path / "good").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_is_one_line(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A taken port of a range, on either address of localhost, is an error of one line, and no player starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        assert main(["unity", "--env", "B", "--num-envs", "3", "--base-port", str(port - 2)]) == ExitCode.PORT_IN_USE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert set(re.findall(r"port (\d+) ", line)) & {
        str(each) for each in range(port - 2, port + 1)
    }  # others may take ports
    assert "--base-port" in line


def test_who_calls_early_is_answered_once_somebody_is_there() -> None:
    """Calls wait until the door opens; closing an open door changes nothing."""
    door, never = PlayerListener(), PlayerListener()
    with ThreadPoolExecutor(2) as threads:
        early, in_vain = threads.submit(door.exchange, b"early"), threads.submit(never.exchange, b"x")
        door.open(Echo())
        never.close()
        assert early.result(SECONDS) == b"early"
        assert in_vain.result(SECONDS) == FAREWELL
    door.close()
    assert door.exchange(b"late") == b"late"


def test_ports_are_closed_at_the_end_and_answer_first() -> None:
    """At the end waiting calls are answered and the ports are closed."""
    port = reserve_ports()
    with Caller(port) as player:
        with listening(Ports(("127.0.0.1",), port, 1, 1 << 20, is_editor=True)):
            answer = player.soon(UnityMessageProto())
            eventually(lambda: is_open("127.0.0.1", port), "an open port")
        # It either came in time for its farewell, or found the port closed.
        failure = answer.exception(SECONDS)
        assert failure is not None or answer.result().header.status == 400
    assert not is_open("127.0.0.1", port)
