"""Tests that commands of tests are forks of loaded processes, and are like new processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode
from tests.e2e import preloaded
from tests.e2e.preloaded import Popen, children_of
from tests.e2e.processes import TRACEBACK, Processes, wait_until
from tests.e2e.runs import small, write_run


def loads_torch(pid: int) -> bool:
    """Returns whether a process has loaded torch."""
    return "torch" in Path(f"/proc/{pid}/maps").read_text()


def stat(pid: int) -> list[str]:
    """Returns state, parent and further fields of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_learners_trainers_and_actors_are_forks(processes: Processes, tmp_path: Path) -> None:
    """Each has its own output and exit code; only trainers have torch, and end with their learner when it is killed."""
    refused = processes.learner(tmp_path / "none.yaml")
    learner = processes.learner(write_run(tmp_path, {"CartPole": small()}))
    actor = processes.actor(learner.address, "CartPole-v1")
    for child in (refused, learner, actor):
        assert isinstance(child.process, Popen)
        assert child.process.is_fork
    assert "none.yaml" in refused.fails_with(ExitCode.RUN_FILE)
    learner.wait_for_version("CartPole", 1, actor)
    (trainers,) = children_of(learner.pid)
    assert [loads_torch(pid) for pid in (learner.pid, actor.pid, trainers)] == [False, False, True]
    assert b"\0learner.start.trainer\0" in Path(f"/proc/{trainers}/cmdline").read_bytes()
    actor.signal(signal.SIGTERM)
    assert actor.wait() == 0, actor.said()
    learner.kill()
    assert learner.process.poll() == -signal.SIGKILL
    wait_until(lambda: not Path(f"/proc/{trainers}").exists(), "the trainers end")


@pytest.mark.parametrize(("environment", "is_fork"), [({"ROLLCAST_INSECURE": "true"}, True), ({"TZ": "UTC"}, False)])
def test_an_environment_that_libraries_may_read_takes_a_new_interpreter(
    processes: Processes, tmp_path: Path, environment: Mapping[str, str], is_fork: bool
) -> None:
    """Settings of Rollcast reach a fork; with other variables, all are new processes, which train and end as Python does."""
    learner = processes.learner(write_run(tmp_path, {"CartPole": small()}), environment=environment)
    actor = processes.actor(learner.address, "CartPole-v1", environment=environment)
    for child in (learner, actor):
        assert isinstance(child.process, Popen)
        assert child.process.is_fork == is_fork
    learner.wait_for_version("CartPole", 1, actor)
    for child in (actor, learner):
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, child.said()
        assert TRACEBACK not in child.err()


def test_other_programs_and_pipes(tmp_path: Path) -> None:
    """A fork's output may be a pipe and its input a file, and what no server has loaded is a new interpreter."""
    command = [sys.executable, "-m", "learner", "check-config", "none.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (ExitCode.RUN_FILE, "")
    assert "none.yaml" in done.stderr
    other = Popen([sys.executable, "-c", "print(1)"], stdout=subprocess.PIPE)
    assert (other.is_fork, other.communicate()) == (False, (b"1\n", None))


@pytest.mark.parametrize("has_asked", [False, True])
def test_a_fork_that_ends_with_its_owner_leaves_its_server(*, has_asked: bool) -> None:
    """A server to which the ends of a fork, of its owner and of what it asked come at once goes on."""
    command = [sys.executable, "-m", "tests.tools.players"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        fork = Popen([*command, "--mlagents-port", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server = int(stat(fork.pid)[1])
        os.kill(server, signal.SIGSTOP)
        try:
            with preloaded.connect("actors") as question:
                if has_asked:
                    question.send(json.dumps({"ending": fork.pid}).encode())
                os.kill(fork.pid, signal.SIGKILL)
                wait_until(lambda: stat(fork.pid)[0] == "Z", "the fork ends")
                fork.link.close()
                fork.returncode = -signal.SIGKILL
        finally:
            os.kill(server, signal.SIGCONT)
    after = Popen([*command, "--help"], stdout=subprocess.DEVNULL)
    assert (after.is_fork, after.wait()) == (True, 0)
