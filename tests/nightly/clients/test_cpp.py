"""Tests the client in C++ with the compiler and the libraries of the distribution."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.processes import Child
from tests.nightly.clients.conftest import FILES, Training, program
from tests.nightly.clients.physics import compare


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


def test_its_cart_is_that_of_gymnasium(tmp_path: Path) -> None:
    """The cart goes as Gymnasium's CartPole-v1 does, and falls in the same step."""
    built(tmp_path / "build")
    messages = sorted(map(str, (tmp_path / "build" / "rollcast" / "v1").glob("*.o")))
    line = (str(program("pkg-config")), "--cflags", "--libs", "grpc++", "protobuf")
    libraries = subprocess.run(line, check=True, capture_output=True, text=True).stdout.split()
    folders = [f"-I{folder}" for folder in (FILES / "cpp", tmp_path / "build")]
    made, source = str(tmp_path / "physics"), str(Path(__file__).parent / "Physics.cpp")
    compiler = (str(program("g++")), "-std=c++17", "-fno-access-control", *folders)
    subprocess.run([*compiler, "-o", made, source, *messages, *libraries], check=True)
    compare(made)
