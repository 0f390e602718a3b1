"""Tests that learners and actors of tests are forks of loaded processes, and end like any process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from learner.common.exits import ExitCode
from tests.e2e.preloaded import Fork
from tests.e2e.processes import Processes
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _plain_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the learner be the one that is forked, whatever ROLLCAST_TEST_LEARNER says."""
    monkeypatch.setattr("tests.e2e.processes.LEARNER", "learner")


def test_a_fork_has_its_own_output_and_exit_code(processes: Processes, tmp_path: Path) -> None:
    """A fork's error and exit code arrive, and so does the signal that ends another."""
    refused = processes.learner(tmp_path / "none.yaml")
    running = processes.learner(write_run(tmp_path, {"CartPole": small()}))
    assert isinstance(refused.process, Fork)
    assert "none.yaml" in refused.fails_with(ExitCode.RUN_FILE)
    assert running.address
    running.kill()
    assert running.process.poll() == -signal.SIGKILL


def test_an_actor_is_a_fork_without_the_learner(processes: Processes, tmp_path: Path) -> None:
    """An actor's fork has no torch, finds environments of its folder, and ends as it should."""
    learner = processes.learner(write_run(tmp_path, {"CartPole": small()}))
    actor = processes.actor(learner.address, "CartPole-v1")
    assert isinstance(actor.process, Fork)
    learner.wait_for_version("CartPole", 1, actor)
    assert "torch" not in Path(f"/proc/{actor.pid}/maps").read_text()
    actor.signal(signal.SIGTERM)
    assert actor.wait() == 0, actor.said()


@pytest.mark.parametrize(
    ("environment", "kind"), [({"ROLLCAST_INSECURE": "true"}, Fork), ({"TZ": "UTC"}, subprocess.Popen)]
)
def test_an_environment_that_libraries_may_read_takes_a_new_interpreter(
    processes: Processes, tmp_path: Path, environment: Mapping[str, str], kind: type
) -> None:
    """Settings of Rollcast reach a fork; with other variables a learner is a new process."""
    learner = processes.learner(write_run(tmp_path, {"CartPole": small()}), environment=environment)
    assert isinstance(learner.process, kind)
    assert learner.address
