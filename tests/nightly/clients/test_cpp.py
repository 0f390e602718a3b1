"""Tests the client in C++ with the compiler and the libraries of the distribution."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.nightly.clients.conftest import FILES, Training, program


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the client as its page says."""
    folder = tmp_path_factory.mktemp("cpp")
    subprocess.run([program("make"), "-C", FILES / "cpp", f"BUILD={folder}"], check=True)
    return folder / "cartpole"


def test_it_trains_to_the_target(training: Training, cartpole: Path) -> None:
    """The client trains CartPole to a mean return of 475, and ends with the run."""
    client = training.processes.program("cpp", cartpole, training.grpc)
    (steps,) = training.ends(client)
    assert steps > 0
