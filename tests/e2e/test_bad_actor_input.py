"""Wrong environments, addresses and names: one clear line, a documented exit code, never a traceback."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.e2e import toys
from tests.e2e.processes import LearnerProcess, Processes
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.slow

NOBODY = "127.0.0.1:1"

ENVIRONMENTS = {
    "unknown id": ("NoSuch-v3", "NoSuch"),
    "module that does not import": ("no_such_module:make", "module no_such_module cannot be imported"),
    "callable that is missing": (toys.named("no_such"), f"module {toys.MODULE} has no no_such"),
    "raises when made": (toys.named("raising_when_made"), "OSError: the simulator is not installed"),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_an_environment_that_cannot_be_made(processes: Processes, case: str) -> None:
    """The actor ends with 11 before it asks for a learner, and says what is wrong in one line."""
    env, expected = ENVIRONMENTS[case]
    line = processes.actor(NOBODY, env, "--log-format", "console").fails_with(11)
    assert line.startswith("error: ")
    assert expected in line
    assert "(exit code 11)" in line


def test_an_environment_that_fails_at_each_step(shared_learner: LearnerProcess, processes: Processes) -> None:
    """After three failures in a row the actor ends with 40; the learner counts what was given up and goes on."""
    arguments = ("--behavior", "Raising", "--log-format", "console")
    actor = processes.actor(shared_learner.address, toys.named("raising_at_steps"), *arguments)
    line = actor.fails_with(40)
    assert "3 failures in a row" in line
    assert "RuntimeError: step 0 fails" in line
    assert shared_learner.behavior("Raising").books.received == 0
    assert shared_learner.events("actor_left")[-1]["reason"] == "environment_failed"


def test_an_environment_that_cannot_be_made_for_a_while(
    shared_learner: LearnerProcess, processes: Processes, tmp_path: Path
) -> None:
    """A simulator that fails, and whose port is busy at the next two attempts, costs its open steps and no more."""
    arguments = ("--behavior", "Returning", "--max-env-failures", "5")
    kwargs = json.dumps({"folder": str(_made(tmp_path)), "made_after": 2})
    actor = processes.actor(shared_learner.address, toys.named("returning"), *arguments, "--env-kwargs", kwargs)
    shared_learner.wait_for_version("Returning", 2, actor)
    assert [line["in_row"] for line in actor.events("environment_failed")] == [1]
    assert len(list((tmp_path / "made").iterdir())) == 4


def test_an_environment_that_comes_back_with_masks(
    shared_learner: LearnerProcess, processes: Processes, tmp_path: Path
) -> None:
    """What is no longer what the run began with is not recorded: the actor ends with 40 and says what differs."""
    arguments = ("--behavior", "Returning", "--log-format", "console")
    kwargs = json.dumps({"folder": str(_made(tmp_path)), "made_after": 0, "masked": True})
    actor = processes.actor(shared_learner.address, toys.named("returning"), *arguments, "--env-kwargs", kwargs)
    assert "made anew, it has action masks, which the first one had not" in actor.fails_with(40)
    assert shared_learner.behavior("Returning").log_prob_error_max < 1e-4


def _made(folder: Path) -> Path:
    (folder / "made").mkdir()
    return folder / "made"


def test_a_learner_that_does_not_answer(processes: Processes) -> None:
    """With --connect-timeout the actor gives up with 20, and names address and next step."""
    arguments = ("--connect-timeout", "1", "--log-format", "console")
    line = processes.actor(NOBODY, "CartPole-v1", *arguments).fails_with(20)
    assert line.startswith(f"error: the learner at {NOBODY} did not answer within 1 s")


def test_a_learner_that_comes_later(processes: Processes) -> None:
    """Without, the actor says that nobody answers, keeps trying, and takes part once the learner is there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    actor = processes.actor(f"127.0.0.1:{port}", "CartPole-v1", name="early")
    learner = processes.learner(write_run(processes.folder, {"CartPole": small()}), port=port)
    learner.wait_for(lambda: actor.events("learner_unreachable"), "the actor says so", actor)
    learner.wait_for_version("CartPole", 1, actor)
    assert actor.events("learner_unreachable")[0]["address"] == f"127.0.0.1:{port}"
    assert len(actor.events("connected")) == 1


def test_an_environment_of_another_shape(shared_learner: LearnerProcess, processes: Processes) -> None:
    """An actor whose environment differs from the first one's ends with 32, and the line shows both sides."""
    first = processes.actor(shared_learner.address, toys.named("box_space"), "--behavior", "Mismatch", name="first")
    shared_learner.wait_for_version("Mismatch", 1, first)
    arguments = ("--behavior", "Mismatch", "--log-format", "console")
    line = processes.actor(shared_learner.address, toys.named("wide"), *arguments, name="second").fails_with(32)
    assert "run float32[3]" in line
    assert "actor float32[5]" in line
    assert "continuous" in line
    assert first.is_running


def test_a_behavior_that_the_run_does_not_have(shared_learner: LearnerProcess, processes: Processes) -> None:
    """An unknown behavior ends the actor with 35, and the line names those that exist."""
    arguments = ("--behavior", "Discreet", "--log-format", "console")
    line = processes.actor(shared_learner.address, "CartPole-v1", *arguments).fails_with(35)
    assert "Discreet" in line
    assert "Discrete" in line.replace("Discreet", "")


def test_a_choice_that_only_the_user_can_make(shared_learner: LearnerProcess, processes: Processes) -> None:
    """A run with several behaviors, and none named: the actor ends with 10 and lists them."""
    line = processes.actor(shared_learner.address, "CartPole-v1", "--log-format", "console").fails_with(10)
    assert "choose one with --behavior" in line
    assert "Continuous" in line


def test_plain_text_to_another_machine(processes: Processes) -> None:
    """An address that is not this machine's needs --insecure; without it, nothing is even tried."""
    line = processes.actor("192.0.2.1:50051", "CartPole-v1").fails_with(10)
    assert "192.0.2.1:50051" in line
    assert "--insecure" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--num-envs", "none"), "--num-envs 'none'"),
        (("--env-kwargs", "[1]"), "--env-kwargs"),
        (("--nmu-envs", "2"), "--nmu-envs"),
        (("--learner", "nowhere"), "--learner 'nowhere'"),
    ],
)
def test_a_wrong_command_line(processes: Processes, arguments: tuple[str, ...], expected: str) -> None:
    """A wrong flag ends the actor with 10 and is named."""
    line = processes.actor(NOBODY, "CartPole-v1", *arguments).fails_with(10)
    assert expected in line


def test_a_wrong_variable(processes: Processes) -> None:
    """A variable that looks like a setting and is none is not ignored; the nearest one is suggested."""
    arguments = ("-m", "actor_client", "gym", "--env", "CartPole-v1")
    actor = processes.python("actor", *arguments, environment={"ROLLCAST_ACTOR_NUM_ENV": "4"})
    assert "did you mean ROLLCAST_ACTOR_NUM_ENVS?" in actor.fails_with(10)


def test_json_logs_hold_the_error(processes: Processes, tmp_path: Path) -> None:
    """With --log-format json the last line is JSON as well."""
    line = processes.actor(NOBODY, "NoSuch-v3").fails_with(11)
    assert json.loads(line)["exit_code"] == 11
