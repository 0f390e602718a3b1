"""Tests trainers on two machines: network namespaces whose link is cut."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode
from tests.e2e.processes import Child, Processes, command_environment
from tests.e2e.runs import cartpole, write_run
from tests.e2e.test_trainer_deaths import is_back
from tests.nightly.chaos.namespaces import Namespace, namespaces
from tests.ports import reserve_ports

NAME = "CartPole"


@pytest.fixture
def machine() -> Iterator[Namespace]:
    """Makes a machine with a link to this one."""
    with namespaces(1) as (made,):
        yield made


def node(processes: Processes, machine: Namespace, number: int, front: int) -> Child:
    """Starts a rank on this machine (number 0) or on the other one."""
    place = ("--trainers", "2", "--rank", str(number), "--restarts", "3")
    line = ("-m", "learner", "trainer", "--learner", f"{machine.host}:{front}", "--insecure", *place)
    return processes.python(f"node-{number}", *(machine.inside if number else ()), *line)


def test_two_machines_train_together(processes: Processes, machine: Namespace) -> None:
    """Ranks on two machines train; while their link is cut nothing is trained, and afterwards the run goes on."""
    front = reserve_ports()
    settings = {"checkpoint_seconds": 1.0, "lease_seconds": 15.0, "collective_seconds": 10.0}
    run_file = write_run(processes.folder, {NAME: cartpole()}, **settings)
    options = ("--trainer-address", f"{machine.host}:{front}", "--trainers", "2", "--insecure")
    learner = processes.learner(run_file, *options)
    nodes = [node(processes, machine, number, front) for number in range(2)]
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor, *nodes)
    assert all(f"rank {number} of 2" in each.said() for number, each in enumerate(nodes))
    learner.wait_for_version(NAME, 4, actor, *nodes)
    machine.cut()
    learner.wait_for(lambda: learner.events("trainers_start_again"), "the loss is noticed", actor)
    machine.mend()
    learner.wait_for(lambda: is_back(learner, 2, 1), "all are back", actor, *nodes)
    learner.wait_for_version(NAME, learner.behavior(NAME).version + 2, actor, *nodes)
    numbers = learner.behavior(NAME).numbers
    assert min(numbers[f"rank_steps/{rank}"] for rank in range(2)) > 0
    learner.operator.drain(final=True)
    assert learner.wait() == ExitCode.OK, learner.said()
    assert [each.wait() for each in nodes] == [0, 0], "".join(each.said() for each in nodes)


def test_ranks_on_a_machine_whose_name_does_not_resolve(tmp_path: Path) -> None:
    """Ranks of one machine find each other by its loopback address."""
    run_file = write_run(tmp_path, {NAME: cartpole()}, trainers=2)
    options = ["--address=127.0.0.1:0", "--max-wall-seconds=1", f"--results-dir={tmp_path}"]
    renamed = ["unshare", "--uts", "sh", "-c", 'hostname no-such-name && exec "$@"', "sh"]
    done = subprocess.run(
        [*renamed, sys.executable, "-m", "learner", "serve", run_file, *options],
        capture_output=True, text=True, timeout=100, check=False, env=command_environment(),
    )  # fmt: skip
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert "trainers_start_again" not in done.stdout + done.stderr
