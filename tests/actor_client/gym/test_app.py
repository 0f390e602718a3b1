"""Tests the command with real processes: one-line errors and documented exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rollcast.demonstrations.reading import read_demonstration
from rollcast.extras import install

from actor_client.cli import main
from actor_client.envs.factory import behavior_of, make_env_batch
from actor_client.exits import ExitCode
from tests.actor_client.onnx_policies import endless_policy, linear_policy
from tests.actor_client.real_learner import RealLearner
from tests.actor_client.scripted import ScriptedLearner, wait_until

SECONDS = 300.0
FAILING = """
import gymnasium

class Failing(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), "float32")
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.left = 5
        return self.observation_space.sample(), {}

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the simulator\\nfell over")
        return self.observation_space.sample(), 1.0, False, False, {}
"""


def command(*arguments: str) -> list[str]:
    """Returns the command line of an actor."""
    return [sys.executable, "-m", "actor_client", "gym", *arguments]


@contextmanager
def started(*arguments: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Runs an actor during the test."""
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, cwd=cwd)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def error_line(text: str) -> str:
    """Returns the line that says why the actor ended."""
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--env", "NoSuch-v0"), ExitCode.UNKNOWN_ENVIRONMENT, "NoSuch"),
        (("--env", "no_such_module:Env"), ExitCode.UNKNOWN_ENVIRONMENT, "no_such_module cannot be imported"),
        (("--env", "CartPole-v1", "--env-kwargs", '{"nonsense": 1}'), ExitCode.UNKNOWN_ENVIRONMENT, "nonsense"),
        (("--env", "CartPole-v1", "--num-envs", "x"), ExitCode.USAGE, "--num-envs 'x'"),
        (("--env", "CartPole-v1", "--nonsense"), ExitCode.USAGE, "unrecognized arguments: --nonsense"),
        (("--env", "CartPole-v1", "--learner", "example.org:1"), ExitCode.USAGE, "--insecure"),
        (
            ("--env", "CartPole-v1", "--learner", "127.0.0.1:1", "--connect-timeout", "0.1"),
            ExitCode.UNREACHABLE,
            "the learner at 127.0.0.1:1 did not answer within 0.1 s",
        ),
    ],
)
def test_faults_of_the_user_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: ExitCode, text: str
) -> None:
    """An error of the user is one line with value, reason and next step, and an exit code."""
    assert main(["gym", *arguments]) == code
    errors = capsys.readouterr().err
    assert text in error_line(errors)
    assert "Traceback" not in errors


def test_a_fault_is_one_line_of_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """With JSON logs every line is JSON, including the last one."""
    assert main(["gym", "--env", "NoSuch-v0", "--log-format", "json"]) == ExitCode.UNKNOWN_ENVIRONMENT
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["event"], event["exit_code"]) == ("actor_ended", ExitCode.UNKNOWN_ENVIRONMENT)
    assert "NoSuch" in event["error"]


def test_commands_answer() -> None:
    """Help and version need nothing else; a missing command is a wrong command line."""
    assert main(["--version"]) == ExitCode.OK
    assert main([]) == ExitCode.USAGE
    with pytest.raises(SystemExit) as ended:
        main(["gym", "--help"])
    assert ended.value.code == ExitCode.OK


@pytest.mark.slow
def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """The error names the extra to install."""
    (tmp_path / "onnxruntime.py").write_text("raise ModuleNotFoundError('gone', name='onnxruntime')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    arguments = command("--env", "CartPole-v1")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment)
    assert done.returncode == ExitCode.MISSING_EXTRA
    assert "onnxruntime" in error_line(done.stderr)
    assert install("actor,gym") in error_line(done.stderr)


def test_an_actor_records_what_its_learner_has_it_do(tmp_path: Path) -> None:
    """With --record the file has the episodes, the learner has every step, and the actor stops after them."""
    path = tmp_path / "acted.demo"
    flags = ("--env", "CartPole-v1", "--num-envs", "2", "--record", str(path), "--record-episodes", "3")
    with RealLearner() as learner, publishing(learner):
        learner.ahead_limit_steps = 100_000
        assert main(["gym", *flags, "--learner", learner.address]) == ExitCode.OK
        assert learner.learner.ledger.books("CartPole").balanced
        taken = learner.learner.ledger.books("CartPole").received
    found = read_demonstration(path, make_env_batch("CartPole-v1", num_envs=1).spec)
    assert found.episodes == 3
    assert 0 < len(found.rows) <= taken
    assert found.rewards.tolist() == [1.0] * len(found.rows)


def test_an_environment_that_fails_again_and_again_ends_the_actor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Repeated failures of an environment end the actor with code 40; open rows are discarded as env_error."""
    (tmp_path / "toys_that_fail.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("--env", "toys_that_fail:Failing", "--max-env-failures", "1", "--behavior", "CartPole")
    with RealLearner() as learner, publishing(learner):
        assert main(["gym", *flags, "--learner", learner.address]) == ExitCode.ENVIRONMENT_FAILED
        assert not learner.learner.sessions.live()
        assert dict(learner.learner.ledger.books("CartPole").lost).keys() <= {"env_error"}
    errors = capsys.readouterr().err
    assert "RuntimeError: the simulator (toys_that_fail.py:15)" in error_line(errors)
    assert errors.count("Traceback") == 1
    assert 'toys_that_fail.py", line 15, in step' in errors
    assert "actor_client" not in errors


@contextmanager
def publishing(learner: RealLearner) -> Iterator[None]:
    """Publishes a policy as soon as a behavior is declared."""

    def publish() -> None:
        wait_until(lambda: learner.learner.behaviors.by_index(0) is not None)
        learner.publish(linear_policy(0))

    publisher = threading.Thread(target=publish)
    publisher.start()
    yield
    publisher.join()


def test_a_run_with_several_behaviors_asks_which(capsys: pytest.CaptureFixture[str]) -> None:
    """If the run has several behaviors, the message lists them."""
    with ScriptedLearner() as learner:
        learner.behaviors = ("Walker", "Crawler")
        assert main(["gym", "--env", "CartPole-v1", "--learner", learner.address]) == ExitCode.USAGE
    assert "has the behaviors Walker, Crawler; choose one with --behavior" in error_line(capsys.readouterr().err)


def test_a_time_limit_ends_the_actor_well(capsys: pytest.CaptureFixture[str]) -> None:
    """--max-wall-seconds ends the actor with 0."""
    arguments = ["gym", "--env", "CartPole-v1", "--learner", "127.0.0.1:1", "--max-wall-seconds", "0.1"]
    assert main(arguments) == ExitCode.OK
    assert "0.1 s have passed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_second_signal_ends_at_once() -> None:
    """A second Ctrl-C ends the actor immediately."""
    with ScriptedLearner() as learner:
        with started("--env", "CartPole-v1", "--learner", learner.address) as process:
            wait_until(lambda: bool(learner.declared))
            learner.publish("CartPole", 0, payload=linear_policy(0).payload)
            learner.acking = False
            wait_until(lambda: bool(learner.chunks))
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)
        assert process.returncode == ExitCode.INTERRUPTED


@pytest.mark.slow
@pytest.mark.parametrize(("at_once", "code"), [(True, ExitCode.OK), (False, ExitCode.POLICY_FAILED)])
def test_one_signal_ends_an_actor_whose_policy_computes_for_ever(*, at_once: bool, code: ExitCode) -> None:
    """A policy that does not return, as it is loaded or as it acts, keeps no actor from ending."""
    with ScriptedLearner() as learner, started("--env", "CartPole-v1", "--learner", learner.address) as process:
        wait_until(lambda: bool(learner.declared))
        if at_once:
            learner.publish("CartPole", 0, payload=linear_policy(0).payload)
            wait_until(lambda: bool(learner.chunks))
        learner.publish("CartPole", 1, payload=endless_policy(at_once=at_once))
        begun = processor_seconds(process.pid)
        wait_until(lambda: processor_seconds(process.pid) > begun + 5.0)
        process.send_signal(signal.SIGTERM)
        process.wait(60.0)
        assert process.returncode == code


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("env", "name"),
    [("CartPole-v1", "CartPole"), ("ALE/Pong-v5", "Pong"), ("pkg:Thing-v0", "Thing"), ("my.mod:make_env", "make_env")],
)
def test_behaviors_are_named_after_environments(env: str, name: str) -> None:
    """A behavior is named after its environment if the run accepts any name."""
    assert behavior_of(env) == name


@pytest.mark.slow
def test_nothing_under_actor_client_imports_torch() -> None:
    """No module under actor_client imports torch."""
    script = (
        "import importlib, pkgutil, sys, actor_client, actor_client.gym.app, actor_client.counts\n"
        "assert 'prometheus_client' not in sys.modules, 'needed only to serve metrics'\n"
        "for found in pkgutil.walk_packages(actor_client.__path__, 'actor_client.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "assert 'gymnasium' not in sys.modules, 'gymnasium'\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'learner', 'onnx')]\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=SECONDS)
