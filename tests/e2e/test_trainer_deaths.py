"""Tests that another process of trainers goes on where a killed one was, with the same actors."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from learner.cli.cli import main
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import ADDRESS_FILE, TRAINERS_FILE
from tests.actor_client.unity.players.programs import is_running
from tests.e2e.processes import LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, write_run

NAME = "CartPole"


def is_back(learner: LearnerProcess, generation: int, actors: int) -> bool:
    """Returns whether a start of the learner serves all its actors; each status is checked."""
    try:
        status = learner.status()
    except UserError:  # between two starts
        return False
    has_actors = len(status.actors) == actors and not status.actors_away
    return has_actors and status.generation == generation and any(each.version > 0 for each in status.behaviors)


def test_killed_trainers_are_replaced_twice(processes: Processes) -> None:
    """Actors and learner outlive their trainers, each status balances, and the third death in ten minutes ends the run."""
    run_file = write_run(processes.folder, {NAME: cartpole()}, checkpoint_seconds=1.0)
    learner = processes.learner(run_file)
    actors = [processes.actor(learner.address, "CartPole-v1", "--num-envs", "2") for _ in range(2)]
    address = learner.address
    victims = []
    for generation in (2, 3):
        learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", *actors)
        learner.wait_for_version(NAME, learner.behavior(NAME).version + 3, *actors)
        victims.extend(learner.trainers)
        os.kill(victims[-1], signal.SIGKILL)
        learner.wait_for(lambda: is_back(learner, generation, len(actors)), "all are back", *actors)  # noqa: B023
        learner.wait_for_version(NAME, learner.behavior(NAME).version + 3, *actors)
    assert learner.address == address
    assert learner.behavior(NAME).books.received > 0
    assert len(victims) == 2
    assert not any(is_running(victim) for victim in victims)
    assert [len(actor.events("connected")) for actor in actors] == [3, 3]
    os.kill(learner.trainers[0], signal.SIGKILL)
    assert "the process of the trainers ended with signal SIGKILL" in learner.fails_with(ExitCode.TRAINER_DIED)
    assert [entry["deaths"] for entry in learner.events("trainers_start_again")] == [1, 2]


@pytest.mark.parametrize(("trainers", "code"), [((), ExitCode.INTERRUPTED), (("--trainers", "2"), 143)])
def test_a_signal_during_the_start(processes: Processes, trainers: tuple[str, ...], code: int) -> None:
    """A signal before there is a run ends at once, with the code of `--stopped-code` if it is given, and leaves nothing behind."""
    with tempfile.TemporaryDirectory() as temporary:  # short, as the paths of sockets must be
        given = () if code == ExitCode.INTERRUPTED else ("--stopped-code", str(code))
        # With a time zone they are new interpreters: forks have a run too soon.
        environment = {"TMPDIR": temporary, "TZ": "UTC"}
        learner = processes.learner(
            write_run(processes.folder, {NAME: cartpole()}), *trainers, *given, environment=environment
        )
        (folder,) = wait_until(lambda: [*Path(temporary).glob("rollcast-*")], "its door", said=learner.said)
        learner.signal(signal.SIGTERM)
        learner.fails_with(code)
        assert not folder.exists()


def test_a_signal_while_trainers_start_again(processes: Processes) -> None:
    """A signal between two starts of the trainers ends at once with the given code, and leaves what was saved, and nothing else."""
    with tempfile.TemporaryDirectory() as temporary:
        run_file = write_run(processes.folder, {NAME: cartpole()}, checkpoint_seconds=1.0)
        learner = processes.learner(run_file, "--stopped-code", "143", environment={"TMPDIR": temporary})
        actor = processes.actor(learner.address, "CartPole-v1")
        learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor)
        os.kill(learner.trainers[0], signal.SIGKILL)
        learner.wait_for(lambda: learner.events("trainers_start_again"), "they start again", actor)
        learner.signal(signal.SIGTERM)
        learner.fails_with(143)
        assert [*Path(temporary).glob("rollcast-*")] == []
        assert (learner.folder / "run_state.pt").exists()
        assert not (learner.folder / "address.json").exists()


LIMIT_SECONDS = 40.0


@pytest.mark.nightly
def test_what_a_restart_of_the_trainers_leaves_as_it_was(
    processes: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Meanwhile status and health check say that it runs; then it is paused as before, and the limit of time has not moved."""
    run_file = write_run(processes.folder, {NAME: cartpole()}, checkpoint_seconds=1.0)
    # Variables that a fork cannot have: new interpreters, whose start takes as long as that of users.
    learner = processes.learner(run_file, "--max-wall-seconds", str(LIMIT_SECONDS), environment={"TZ": "UTC"})
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor)
    learner.operator.pause()
    learner.wait_for(lambda: learner.status().uptime_seconds > 5.0, "some time passes", actor)
    os.kill(learner.trainers[0], signal.SIGKILL)
    addresses = learner.folder / ADDRESS_FILE
    learner.wait_for(lambda: (learner.folder / TRAINERS_FILE).exists() and not addresses.exists(), "a restart", actor)
    said = f"the learner of {learner.folder} runs and starts its trainers again"
    for command, code in (("status", 0), ("healthcheck", 0), ("save", 21), ("drain", 21)):
        assert main([command, str(learner.folder)]) == code
        assert said in "".join(capsys.readouterr())
    learner.wait_for(lambda: is_back(learner, 2, 1), "it is back", actor)
    assert learner.status().state == "RUN_STATE_PAUSED"
    uptimes = [0.0]

    def has_ended() -> bool:
        try:
            uptimes.append(learner.status().uptime_seconds)
        except UserError:
            return not learner.is_running
        return False

    wait_until(has_ended, "the limit ends it", said=learner.said)
    assert learner.wait() == ExitCode.OK, learner.said()
    assert max(uptimes) < LIMIT_SECONDS - 4.0
    assert not (learner.folder / TRAINERS_FILE).exists()
