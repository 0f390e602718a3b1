"""Tests the client in C++ with the compiler and the libraries of the distribution."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.processes import Child
from tests.nightly.clients.conftest import FILES, Training, program


def built(folder: Path) -> Path:
    """Builds the client as its page says, and returns its path."""
    subprocess.run([program("make"), "-C", FILES / "cpp", f"BUILD={folder}"], check=True)
    return folder / "cartpole"


def start(training: Training, made: Path, environment: Mapping[str, str] = {}) -> Child:
    """Starts the client."""
    return training.processes.program("cpp", made, training.grpc, environment=environment)


def test_it_trains_to_the_target(training: Training, tmp_path: Path) -> None:
    """The client trains CartPole to a mean return of 475, and ends with the run."""
    training.is_trained_by(start(training, built(tmp_path / "build")), agents=8)
