"""Fixtures: a learner and a gateway that train CartPole from clients; `make nightly NIGHTLY=clients` runs this folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import ROOT, Child, LearnerProcess, Processes
from tests.e2e.runs import cartpole, write_run
from tests.ports import reserve_ports

NAME = "CartPole"
TARGET_RETURN = 475.0
FILES = ROOT / "deploy" / "clients"


class Training:
    """A run of CartPole that ends at a mean return of 475, and a gateway for clients.

    Args:
        processes: Starts them.
        options: Of the gateway.
        target_return: The run ends there.
        rollcast: Keys of the block of that name in the run file.

    Attributes:
        learner: The learner; a test that restarts it sets the new one.
        gateway: `rollcast act clients`; clients connect again until it listens.
        grpc: Where clients connect with gRPC.
        web: Where clients connect otherwise.
        run_file: The run file.
    """

    def __init__(
        self, processes: Processes, *options: str, target_return: float = TARGET_RETURN, **rollcast: Any
    ) -> None:
        self.processes = processes
        self._options = options
        self.run_file = write_run(processes.folder, {NAME: cartpole()}, target_return=target_return, **rollcast)
        self.learner: LearnerProcess = processes.learner(self.run_file)
        port = reserve_ports(2)
        self.grpc, self.web = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
        self.gateway: Child
        self.start_gateway()

    def start_gateway(self) -> None:
        """Starts the gateway, at the same addresses again after a kill."""
        listen = ("--listen", self.grpc, "--web", self.web, "--metrics-address", "127.0.0.1:0")
        line = ("-m", "actor_client", "clients", *listen, "--log-format", "json", "--name", "gateway")
        self.gateway = self.processes.python("gateway", *line, "--learner", self.learner.address, *self._options)

    def ends(self, *clients: Child) -> list[int]:
        """Waits until the run has reached its target, and everything ends normally; returns the steps that each client says.

        The run fails if a client ends before.
        """
        assert self.learner.wait() == 0, self.said(*clients)
        summary = json.loads((self.learner.folder / "summary.json").read_text())
        assert summary["stop_reason"] == "target_return", summary
        assert summary["mean_return_100"] >= TARGET_RETURN, summary
        assert self.gateway.wait() == 0, self.said(*clients)
        return [self._goodbye(client) for client in clients]

    def is_trained_by(self, client: Child, agents: int) -> None:
        """Waits for the end of a run with one client, whose steps are those in the books of the gateway.

        Args:
            client: The client.
            agents: How many act in one message: the last actions may come when the gateway takes no report any more.
        """
        (steps,) = self.ends(client)
        (books,) = self.gateway.events("books")[-1:]
        assert steps - agents <= books["produced"] <= steps, (steps, books)

    def said(self, *others: Child) -> str:
        """Returns the end of what everyone said, for messages."""
        return "\n".join(child.said() for child in (self.learner, self.gateway, *others))

    def _goodbye(self, client: Child) -> int:
        """Waits until a client has ended by a goodbye, and returns its number of steps."""
        assert client.wait() == 0, client.said()
        return int(client.out().rpartition("goodbye after ")[2].split()[0])


@pytest.fixture
def training(processes: Processes) -> Training:
    """Starts a learner and a gateway."""
    return Training(processes)


def program(name: str) -> Path:
    """Returns the path of a program that this part needs; `.ci/packages` has its package."""
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed; as root, .ci/install clients"
    return Path(found)
