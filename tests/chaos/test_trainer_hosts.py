"""Tests trainers on two machines: network namespaces whose link is cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.common.exits import ExitCode
from tests.chaos.namespaces import Namespace, namespaces
from tests.e2e.processes import Child, Processes, processes_in
from tests.e2e.runs import cartpole, write_run
from tests.e2e.test_outages import free_port
from tests.e2e.test_trainer_deaths import is_back

NAME = "CartPole"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


@pytest.fixture
def machine() -> Iterator[Namespace]:
    """Makes a machine with a link to this one."""
    with namespaces(1) as (made,):
        yield made


def node(processes: Processes, machine: Namespace, number: int, front: int, meeting: int) -> Child:
    """Starts torchrun with one rank on this machine (node 0) or on the other one."""
    address = f"{machine.host}:{front}"
    launch = (
        *(
            "--nnodes",
            "2",
            "--nproc-per-node",
            "1",
            "--rdzv-backend",
            "c10d",
            "--rdzv-id",
            "run",
            "--max-restarts",
            "3",
        ),
        *("--rdzv-endpoint", f"{machine.host}:{meeting}", "--rdzv-conf", f"is_host={str(not number).lower()}"),
        *("--local-addr", machine.host if number == 0 else machine.address, "--log-dir", os.devnull),
    )
    line = ("-m", "torch.distributed.run", *launch, "-m", "learner", "trainer", "--front", address, "--insecure")
    inside = machine.inside if number else ()
    device = "eth0" if number else machine.cable
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": device, "TP_SOCKET_IFNAME": device}
    return processes.python(f"node-{number}", *inside, *line, environment=environment)


@pytest.mark.timeout(400)
def test_two_machines_train_together(processes: Processes, machine: Namespace) -> None:
    """Ranks on two machines train; while their link is cut nothing is trained, and afterwards the run goes on."""
    front, meeting = free_port(), free_port()
    settings = {"checkpoint_seconds": 1.0, "lease_seconds": 15.0, "collective_seconds": 10.0}
    run_file = write_run(processes.folder, {NAME: cartpole()}, **settings)
    options = ("--trainer-address", f"{machine.host}:{front}", "--trainers", "2", "--insecure")
    learner = processes.learner(run_file, *options)
    nodes = [node(processes, machine, number, front, meeting) for number in range(2)]
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a run state", actor, *nodes)
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
