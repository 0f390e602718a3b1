"""Tests that failing and hanging environments are visible on both sides and end their actor."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e import toys
from tests.e2e.processes import TRACEBACK, Child, LearnerProcess, Processes, wait_until
from tests.e2e.runs import small, write_run

PLACE = r"tests/actor_client/envs/toys.py:"


@pytest.fixture
def learner(processes: Processes, tmp_path: Path) -> LearnerProcess:
    """Starts a learner that trains any environment of the toys."""
    return processes.learner(write_run(tmp_path, {"Toy": small()}))


def _ended(actor: Child, code: int) -> str:
    """Waits until an actor has ended with a code; returns its last line."""
    assert actor.wait() == code, actor.said()
    return actor.err().rstrip().rpartition("\n")[2]


def test_an_environment_that_fails_now_and_then(processes: Processes, learner: LearnerProcess) -> None:
    """An environment that fails every eighth step ends its actor, and both sides say why and where."""
    actor = processes.actor(learner.address, toys.named("raising_now_and_then"), "--log-format", "console")
    line = _ended(actor, 40)
    assert "RuntimeError: step 7 fails" in line
    assert PLACE in line
    assert TRACEBACK in actor.err()
    assert "actor_client/rollout" not in actor.err()
    (left,) = learner.events("actor_left")
    assert left["reason"] == "environment_failed"
    assert PLACE in left["message"]
    assert PLACE in learner.status().last_error


def test_a_failure_is_seen_while_the_actor_goes_on(processes: Processes, learner: LearnerProcess) -> None:
    """The learner's log and status have the error, its place and the steps that it cost."""
    arguments = ("--max-env-failures", "1000000")
    actor = processes.actor(learner.address, toys.named("raising_now_and_then"), *arguments)
    learner.wait_for(lambda: learner.events("environment_failed"), "the learner warns", actor)
    told = learner.events("environment_failed")[0]
    assert "RuntimeError: step 7 fails" in told["error"]
    assert PLACE in told["error"]
    assert told["failures"] > 0
    state = learner.actor(told["actor"]).environments
    assert state.failures >= told["failures"]
    assert PLACE in state.error


def test_shapes_are_settled_by_an_environment_that_works(processes: Processes, learner: LearnerProcess) -> None:
    """An actor whose environment cannot be reset declares nothing, so another spec can be declared."""
    wrong = processes.actor(learner.address, toys.named("wide_and_raising"), name="wrong")
    assert wrong.wait() == 40, wrong.said()
    right = processes.actor(learner.address, "tests.actor_client.envs.toys:Toy", name="right")
    learner.wait_for_version("Toy", 1, right)
    assert not wrong.events("acting")


HANGING = "environment 0 has been in step() at tests/e2e/toys.py:"


def test_a_time_limit_ends_an_actor_that_hangs(processes: Processes, learner: LearnerProcess) -> None:
    """With --step-timeout a hanging actor ends with 44 and one line; the learner is notified."""
    arguments = ("--step-timeout", "1", "--log-format", "console")
    line = processes.actor(learner.address, toys.named("hanging"), *arguments).fails_with(44)
    assert line.startswith(f"error: {HANGING}")
    assert "--step-timeout allows 1 s" in line
    (left,) = learner.events("actor_left")
    assert left["reason"] == "environment_failed"
    assert left["message"].startswith(HANGING)


def test_a_time_limit_ends_environments_in_processes_too(processes: Processes, learner: LearnerProcess) -> None:
    """With environments in processes, the message names no place in the code."""
    arguments = ("--vector", "--num-envs", "2", "--step-timeout", "1", "--log-format", "console")
    line = processes.actor(learner.address, toys.named("hanging_processes"), *arguments).fails_with(44)
    assert line.startswith("error: the environment batch has been in step() for 1.")


def test_one_signal_ends_an_actor_that_hangs(processes: Processes, learner: LearnerProcess) -> None:
    """One signal ends a hanging actor and closes its session; the status shows what hangs."""
    actor = processes.actor(learner.address, toys.named("hanging"), "--log-format", "console", name="hanging")

    def hangs() -> bool:
        return learner.actor("hanging").environments.hanging.startswith(HANGING)

    learner.wait_for(hangs, "the status says so", actor)
    assert learner.actor("hanging").environments.hanging_seconds >= 10
    actor.signal(signal.SIGTERM)
    assert "the actor was asked to stop" in actor.fails_with(44)
    (left,) = learner.events("actor_left")
    assert left["message"].startswith(HANGING)


@pytest.mark.nightly
def test_one_signal_ends_an_actor_that_hangs_in_a_library(processes: Processes, learner: LearnerProcess) -> None:
    """Python's handlers do not run while the main thread is inside C code; the signal still counts."""
    environment = toys.named("hanging_in_a_library")
    actor = processes.actor(learner.address, environment, "--log-format", "console", name="hanging")
    learner.wait_for(lambda: learner.actor("hanging").environments.hanging, "the status says so", actor)
    actor.signal(signal.SIGTERM)
    assert "the actor was asked to stop" in actor.fails_with(44)
    (left,) = learner.events("actor_left")
    assert left["message"].startswith("environment 0 has been in step() at tests/e2e/toys.py:")


def test_one_signal_ends_an_actor_whose_environment_is_never_made(processes: Processes) -> None:
    """The first construction is watched too; no learner is needed for it."""
    arguments = ("--log-format", "console")
    actor = processes.actor("127.0.0.1:1", toys.named("hanging_when_made"), *arguments)
    wait_until(lambda: "construction begins" in actor.err(), "the construction begins", said=actor.said)
    actor.signal(signal.SIGTERM)
    line = actor.fails_with(44)
    assert line.startswith("error: the environment batch has been in construction")
    assert "the actor was asked to stop" in line
