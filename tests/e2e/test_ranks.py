"""Tests runs whose trainers are several processes."""

from __future__ import annotations

import getpass
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from learner.shared.exits import ExitCode
from learner.shared.runfolder.store import read_run_state
from tests.actor_client.unity.players.programs import is_running
from tests.e2e.lockstep import Actor, differences, meanwhile, playing, stop_at_round
from tests.e2e.preloaded import children_of
from tests.e2e.processes import TRACEBACK, LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.e2e.test_lockstep import EVERY, left_behind, run_in, updates
from tests.e2e.test_trainer_deaths import is_back

NAME = "CartPole"
CACHE = f"torchinductor_{getpass.getuser()}"
"""Folder that torch makes for each user of a machine, and keeps."""


def ranks_of(learner: LearnerProcess) -> list[int]:
    """Returns the processes of its trainers; their parent is torchrun."""
    (launcher,) = children_of(learner.pid)
    return children_of(launcher)


def test_ranks_train_and_resume(processes: Processes) -> None:
    """Two ranks train with real actors, and three and one continue from what they saved; nothing is left behind."""
    run_file = write_run(processes.folder, {NAME: cartpole()}, http=True, http_address="127.0.0.1:0")
    version = 0
    for ranks in (2, 3, 1):
        flags = ("--trainers", str(ranks), *(("--resume",) if version else ()))
        learner = processes.learner(run_file, *flags)
        actors = [processes.actor(learner.address, "CartPole-v1", "--num-envs", "3") for _ in range(2)]
        learner.wait_for_version(NAME, version + 3, *actors)
        found = ranks_of(learner) if ranks > 1 else []
        assert len(found) == (ranks if ranks > 1 else 0)
        numbers = learner.behavior(NAME).numbers
        assert sum(numbers.get(f"rank_steps/{rank}", 0.0) for rank in range(ranks)) >= (1024 if ranks > 1 else 0)
        version = learner.behavior(NAME).version
        learner.signal(signal.SIGTERM)
        assert learner.wait() == ExitCode.OK
        assert not any(is_running(rank) for rank in found)
        state = read_run_state(learner.folder)
        assert state is not None
        assert state.trainers[NAME]["version"] >= version
        version = state.trainers[NAME]["version"]
        for actor in actors:
            actor.signal(signal.SIGTERM)
            actor.wait()


def test_a_killed_rank_starts_all_again(processes: Processes) -> None:
    """Whichever rank is killed, the run goes on with the same actors; with the service, all end."""
    run_file = write_run(processes.folder, {NAME: cartpole()}, checkpoint_seconds=1.0, trainers=2)
    learner = processes.learner(run_file)
    actors = [processes.actor(learner.address, "CartPole-v1", "--num-envs", "2") for _ in range(2)]
    victims = []
    for generation, rank in ((2, 1), (3, 0)):
        learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", *actors)
        learner.wait_for_version(NAME, learner.behavior(NAME).version + 3, *actors)
        victims += ranks_of(learner)
        os.kill(victims[rank - 2], signal.SIGKILL)
        learner.wait_for(lambda: is_back(learner, generation, len(actors)), "all are back", *actors)  # noqa: B023
    restarts = learner.events("trainers_start_again")
    assert [entry["deaths"] for entry in restarts] == [1, 2]
    for entry in restarts:  # rank 0 may report the end of the other one before the service notices it
        assert any(
            reason in entry["reason"]
            for reason in ("ended with code 40", "a rank of the trainers has ended or does not answer: ")
        ), entry["reason"]
        assert "SIGKILL" not in entry["reason"], "the other rank ended by itself, in time"
    assert not any(is_running(victim) for victim in victims)
    found = [*children_of(learner.pid), *ranks_of(learner)]
    learner.kill()
    learner.wait()
    wait_until(lambda: not any(is_running(each) for each in found), "the trainers end")


def test_a_signal_to_all_processes_saves(processes: Processes) -> None:
    """A signal that reaches torchrun and the ranks, too, as that of a scheduler, ends the run as one to the service does."""
    run_file = write_run(processes.folder, {NAME: cartpole()}, checkpoint_seconds=600.0, trainers=2)
    learner = processes.learner(run_file, "--stopped-code", "143")
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    version = learner.wait_for_version(NAME, 3, actor).version
    for pid in (*ranks_of(learner), *children_of(learner.pid), learner.pid):
        os.kill(pid, signal.SIGTERM)
    assert learner.wait() == 143, learner.said()
    assert TRACEBACK not in learner.err(), learner.said()
    state = read_run_state(learner.folder)
    assert state is not None
    assert state.trainers[NAME]["version"] >= version
    assert (learner.folder / f"{NAME}.onnx").exists()


@pytest.mark.parametrize(
    ("trainer", "network"),
    [("appo", {}), ("poca", {}), ("ppo", {"memory": {"memory_size": 16, "sequence_length": 8}})],
)
def test_each_trainer_in_two_ranks(processes: Processes, trainer: str, network: dict[str, Any]) -> None:
    """Other trainers, and networks with memory, train in two ranks with real actors."""
    settings = cartpole(trainer_type=trainer)
    del settings["hyperparameters"]["ratio"]
    settings["network_settings"] = {"hidden_units": 32, "num_layers": 1, **network}
    learner = processes.learner(write_run(processes.folder, {NAME: settings}, trainers=2))
    actors = [processes.actor(learner.address, "CartPole-v1", "--num-envs", "3") for _ in range(2)]
    numbers = learner.wait_for_version(NAME, 3, *actors).numbers
    assert min(numbers["rank_steps/0"], numbers["rank_steps/1"]) > 0
    learner.signal(signal.SIGTERM)
    assert learner.wait() == ExitCode.OK


def killed_at_random(processes: Processes, temporary: Path, seed: int) -> None:
    """Kills two of three processes of the trainers at random moments, and at last the service or their whole group.

    After each kill the same actor processes take steps, and the books balance. At last, nothing is left.
    """
    chance = random.Random(seed)
    run_file = write_run(processes.folder, {NAME: cartpole()}, checkpoint_seconds=1.0, trainers=2)
    learner = processes.learner(run_file, environment={"TMPDIR": str(temporary)})
    actors = [processes.actor(learner.address, "CartPole-v1", "--num-envs", "2") for _ in range(2)]
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", *actors)
    trainers: set[int] = set()
    for generation in (2, 3):
        learner.wait_for_version(NAME, learner.behavior(NAME).version + 1, *actors)
        time.sleep(chance.uniform(0.0, 3.0))
        found = [*children_of(learner.pid), *ranks_of(learner)]
        trainers.update(found)
        os.kill(chance.choice(found), signal.SIGKILL)
        learner.wait_for(lambda: is_back(learner, generation, len(actors)), "all are back", *actors)  # noqa: B023
        steps = learner.behavior(NAME).books.received
        learner.wait_for(lambda: learner.behavior(NAME).books.received > steps, "new steps", *actors)  # noqa: B023
    (launcher,) = children_of(learner.pid)
    trainers.update((launcher, *ranks_of(learner)))
    time.sleep(chance.uniform(0.0, 3.0))
    if chance.random() < 0.5:
        learner.kill()
    else:
        os.killpg(launcher, signal.SIGKILL)
        assert "the process of the trainers ended with signal SIGKILL" in learner.fails_with(ExitCode.TRAINER_DIED)
    wait_until(lambda: not any(is_running(each) for each in trainers), "the trainers end")
    assert [each.name for each in temporary.iterdir() if each.name != CACHE] == []
    for actor in actors:
        assert {entry["generation"] for entry in actor.events("connected")} == {1, 2, 3}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_kills_at_random_moments(processes: Processes, seed: int) -> None:
    """Whenever a process of the trainers is killed, the run goes on, and it leaves nothing behind."""
    with tempfile.TemporaryDirectory() as temporary:  # short, as the paths of sockets must be
        killed_at_random(processes, Path(temporary), seed)


@pytest.mark.nightly
def test_a_rank_that_does_not_answer_starts_all_again(processes: Processes) -> None:
    """A suspended rank is waited for as long as the run file says, and then killed."""
    run_file = write_run(
        processes.folder, {NAME: cartpole()}, checkpoint_seconds=1.0, trainers=2, collective_seconds=10.0
    )
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor)
    found = ranks_of(learner)
    os.kill(found[1], signal.SIGSTOP)
    learner.wait_for(lambda: is_back(learner, 2, 1), "all are back", actor)
    assert (
        "a rank of the trainers has ended or does not answer: Timed out waiting"
        in learner.events("trainers_start_again")[0]["reason"]
    )
    assert not any(is_running(rank) for rank in found)


def test_lockstep_with_two_ranks_repeats_itself(tmp_path: Path) -> None:
    """A run that is stopped and resumed is bit-equal to one that is not; another number of ranks marks it."""
    parted = run_in(tmp_path / "parted", updates(10**6), trainers=2)
    with playing(parted, Actor("left"), Actor("right"), leave=True):
        with meanwhile(lambda: stop_at_round(parted, EVERY + 2)):
            assert parted.serve() == ExitCode.OK
        checkpoint = parted.state()["extra"]["lockstep"]["round"]
    parted.behaviors = updates(checkpoint + 5)
    with playing(parted, Actor("left"), Actor("right")):
        assert parted.serve("--resume") == ExitCode.OK
    whole = run_in(tmp_path / "whole", updates(checkpoint + 5), trainers=2)
    with playing(whole, Actor("left"), Actor("right", delay_seconds=0.3)):
        assert whole.serve() == ExitCode.OK
    assert differences(whole.final(), parted.final()) == []
    assert parted.final()["state"]["version"] == checkpoint + 5
    assert left_behind(parted)["lockstep"]["reproducible"]
    parted.behaviors, parted.rollcast = updates(checkpoint + 7), {}
    with playing(parted, Actor("left"), Actor("right")):
        assert parted.serve("--resume") == ExitCode.OK
    assert left_behind(parted)["lockstep"]["reason"].startswith("the run began with 2 trainer processes")
