"""Tests how the output of the actors of `train` becomes lines of the log and the error of the command."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from learner.shared.exits import ExitCode
from learner.shared.settings.service import ServiceSettings
from learner.start.actors import Failure, OwnIdentity, TrainingRequest, _LoggedActor

PROGRAM = r"""
import sys
print("hello from the environment")
print('{"event": "slow", "level": "warning", "self": 1, "actor": "forged", "seconds": 3, "timestamp": "x"}')
print('{"event": "\\u001b[2Jodd", "level": "bind"}')
print('{"no": "event"}')
print("[" * 100000, flush=True)
sys.stdout.buffer.write(b"\xff\x1b[2J\n")
print('{"event": "actor_ended", "error": "it broke", "exception": "Traceback\\n  line", "level": "error"}')
sys.exit(40)
"""


def followed(program: str) -> tuple[list[Any], int, _LoggedActor]:
    """Returns the log lines of an actor's output, its exit code, and the actor."""
    ended, codes = threading.Event(), []

    def note(_actor: _LoggedActor, code: int) -> None:
        codes.append(code)
        ended.set()

    with capture_logs() as lines:
        actor = _LoggedActor("local", [sys.executable, "-c", program], note)
        assert ended.wait(300)
        actor.end(0.0)
    return lines, codes[0], actor


@pytest.mark.slow
def test_lines_of_an_actor_are_lines_of_the_log() -> None:
    """Whatever an environment prints is logged with the actor's name, and never taken for a command of the log."""
    lines, code, actor = followed(PROGRAM)
    assert code == 40
    assert {line["actor"] for line in lines} == {"local"}
    assert lines[0] == {
        "event": "actor_output",
        "log_level": "info",
        "actor": "local",
        "line": "hello from the environment",
    }
    assert lines[1] == {"event": "slow", "log_level": "warning", "actor": "local", "seconds": 3}
    assert lines[2] == {"event": "\\x1b[2Jodd", "log_level": "warning", "actor": "local"}
    assert all(str(line.get("line", "")).isprintable() for line in lines)
    error = actor.error(code)
    assert error is not None
    assert (error.code, error.message, error.details) == (40, "it broke", ("Traceback", "  line"))


@pytest.mark.parametrize(
    ("lines", "code", "message", "exit_code"),
    [
        (["error: wrong flag; see --help"], 10, "wrong flag; see --help", 10),
        ([], 50, "the actor a ended with exit code 50", 50),
        ([], -9, "the actor a was killed by signal 9", ExitCode.ACTORS_FAILED),
    ],
)
def test_the_error_of_an_actor_is_its_own(lines: list[str], code: int, message: str, exit_code: int) -> None:
    """Its message and its exit code are those of the command; a killed actor has neither."""
    failure = Failure()
    assert all(failure.take(line) for line in lines)
    error = failure.error("the actor a", code)
    assert (error.message, error.code) == (message, exit_code)


@pytest.mark.parametrize(
    ("address", "has_tls", "how"),
    [
        ("127.0.0.1:5", False, "to let other machines join, start with --address 0.0.0.0:5 --insecure"),
        ("[::1]:5", True, "to let other machines join, start with --address 0.0.0.0:5 --certs DIR"),
        ("10.0.0.5:5", False, "join with: rollcast act gym --env X --learner 10.0.0.5:5 --insecure"),
        ("10.0.0.5:5", True, "join with: rollcast act gym --env X --learner 10.0.0.5:5 --certs DIR"),
    ],
)
def test_other_machines_learn_how_to_join(address: str, has_tls: bool, how: str) -> None:
    """The line has an address that other machines reach, or says how to get one."""
    service = ServiceSettings(certs="certs") if has_tls else ServiceSettings()
    request = TrainingRequest("X", 1, (), service, may_move=True, flags="--env X", chosen="")
    assert request.another_machine(address).endswith(how)


@pytest.mark.parametrize(
    ("settings", "arguments", "flags"),
    [
        ({}, (), []),
        ({"address": "10.0.0.5:7", "insecure": True}, (), ["--insecure"]),
        ({"certs": "certs"}, ("--num-envs=4",), ["--tls-ca", "--token-file"]),
        ({"certs": "certs", "address": "0.0.0.0:7"}, (), ["--tls-ca", "--token-file"]),
        ({"certs": "certs"}, ("--certs", "mine"), []),
        ({"certs": "certs"}, ("--token-file=mine",), []),
    ],
)
def test_own_actors_are_known_to_their_learner(
    settings: dict[str, Any], arguments: tuple[str, ...], flags: list[str]
) -> None:
    """With TLS they get its authority and a token, which ends with them, unless the user gave them an identity."""
    identity = OwnIdentity(ServiceSettings(**settings), arguments)
    given = identity.flags()
    assert [each for each in given if each.startswith("--")] == flags
    assert len(identity.tokens) == ("--token-file" in given)
    token = Path(given[-1]) if identity.tokens else None
    assert token is None or token.stat().st_mode & 0o077 == 0
    identity.close()
    assert token is None or not token.exists()
