"""Tests that environments with processes of their own start, fail, come back and end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.preloaded import children_of
from tests.e2e.processes import LearnerProcess, Processes, wait_until
from tests.e2e.runs import small, write_run

MODULE = "tests.e2e.forking"


@pytest.fixture
def learner(processes: Processes, tmp_path: Path) -> LearnerProcess:
    """Starts a learner whose run is short."""
    return processes.learner(write_run(tmp_path, {"Toy": small(max_steps=1500)}))


@pytest.mark.parametrize("name", ["Served", "Unclosed", "Deleted", "Pooled"])
def test_processes_of_environments_end_with_their_actor(
    processes: Processes, learner: LearnerProcess, name: str
) -> None:
    """Processes, pools and daemons work beside gRPC: none crashes, and the actor ends with 0 when the run is over."""
    options = ("--num-envs", "2", "--max-env-failures", "1")
    # Two leave their processes to the end of a new interpreter, which deletes the environments too.
    environment = {"TZ": "UTC"} if name in {"Unclosed", "Deleted"} else {}
    actor = processes.actor(learner.address, f"{MODULE}:{name}", *options, environment=environment)
    assert actor.wait() == 0, actor.said()
    assert actor.events("books")[-1]["discarded"] == {}, actor.said()


def test_environments_in_processes_come_back(processes: Processes, learner: LearnerProcess) -> None:
    """A vector environment whose copies fail is made again each time, until the run is over."""
    arguments = ("--vector", "--num-envs", "3", "--max-env-failures", "1000000")
    actor = processes.actor(learner.address, f"{MODULE}:failing", *arguments)
    assert actor.wait() == 0, actor.said()
    assert actor.events("progress")[-1]["env_failures"] > 5


def test_a_forked_process_is_no_second_actor(processes: Processes, learner: LearnerProcess) -> None:
    """A process that an environment has forked, and that fails in our code, ends with its traceback; the actor goes on."""
    actor = processes.actor(learner.address, f"{MODULE}:Forgotten", "--max-env-failures", "1")
    assert actor.wait() == 0, actor.said()
    assert "RuntimeError: the forked process goes on" in actor.err()
    assert not actor.events("environment_failed")


@pytest.mark.parametrize("where", ["close", "__del__"])
def test_a_time_limit_ends_an_actor_whose_environment_does_not_close(
    processes: Processes, learner: LearnerProcess, where: str
) -> None:
    """--step-timeout holds for `close()` and what follows from it, too."""
    arguments = ("--env-kwargs", f'{{"where": "{where}"}}', "--step-timeout", "2", "--log-format", "console")
    actor = processes.actor(learner.address, f"{MODULE}:Stuck", *arguments)
    assert actor.wait() == 44, actor.said()
    line = actor.err().rstrip().rpartition("\n")[2]
    assert "has been in close() at tests/e2e/forking.py:" in line
    assert "--step-timeout allows 2 s" in line


def test_the_second_signal_ends_processes_of_environments_too(processes: Processes, learner: LearnerProcess) -> None:
    """A second signal leaves no process of `multiprocessing` behind."""
    arguments = ("--vector", "--num-envs", "2", "--behavior", "Toy")
    actor = processes.actor(learner.address, f"{MODULE}:stuck_processes", *arguments)
    learner.wait_for_version("Toy", 1, actor)
    copies = children_of(actor.pid)
    assert len(copies) == 2
    actor.signal(signal.SIGTERM)
    wait_until(lambda: "closing begins" in actor.err(), "it closes", said=actor.said)
    actor.signal(signal.SIGTERM)
    assert actor.wait() == 130, actor.said()
    wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in copies), "its processes end")
