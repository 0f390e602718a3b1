"""Tests the client in Python with nothing but grpcio, protobuf and the generated messages."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT, Child
from tests.nightly.clients.conftest import FILES, Training

PACKAGES = ("grpc", "google", "typing_extensions")
MESSAGES = ("tensor", "spec", "client")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Makes a folder with the packages that its page names, and the messages generated as it says."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        assert found is not None
        place = found.submodule_search_locations
        origin = Path(place[0] if place else str(found.origin))
        (folder / origin.name).symlink_to(origin)
    shutil.copy(FILES / "python" / "cartpole.py", folder)
    protos = [f"rollcast/v1/{name}.proto" for name in MESSAGES]
    outputs = ("--python_out=.", "--grpc_python_out=.")
    line = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'protos'}", *outputs, *protos]
    subprocess.run(line, cwd=folder, check=True)
    return folder


def start(training: Training, packages: Path, *arguments: str, name: str = "python") -> Child:
    """Starts the client in an interpreter without site-packages."""
    line = ("-S", str(packages / "cartpole.py"), training.grpc, *arguments)
    return training.processes.python(name, *line, environment={"PYTHONPATH": str(packages)})


def test_it_trains_to_the_target(training: Training, packages: Path) -> None:
    """The copied file trains CartPole to a mean return of 475, and ends with the run."""
    client = start(training, packages)
    (steps,) = training.ends(client)
    assert steps > 0
