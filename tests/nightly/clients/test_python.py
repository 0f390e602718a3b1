"""Tests the client in Python with nothing but grpcio, protobuf and the generated messages."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.processes import ROOT, Child
from tests.nightly.clients.conftest import FILES, Training

PACKAGES = ("grpc", "google", "typing_extensions")
MESSAGES = ("tensor", "spec", "client")


def packages_in(folder: Path) -> Path:
    """Makes a folder with the packages that its page names, and the messages generated as it says."""
    folder.mkdir()
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        assert found is not None
        place = found.submodule_search_locations
        origin = Path(place[0] if place else str(found.origin))
        (folder / origin.name).symlink_to(origin)
    shutil.copy(FILES / "python" / "cartpole.py", folder)
    protos = [f"rollcast/v1/{name}.proto" for name in MESSAGES]
    outputs = (f"--python_out={folder}", f"--grpc_python_out={folder}")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, *protos], cwd=ROOT / "protos", check=True
    )
    return folder


def start(training: Training, packages: Path, environment: Mapping[str, str] = {}) -> Child:
    """Starts the client in an interpreter without site-packages."""
    line = ("-S", str(packages / "cartpole.py"), training.grpc)
    return training.processes.python("python", *line, environment={"PYTHONPATH": str(packages), **environment})


def test_it_trains_to_the_target(training: Training, tmp_path: Path) -> None:
    """The copied file trains CartPole to a mean return of 475, and ends with the run."""
    training.is_trained_by(start(training, packages_in(tmp_path / "packages")), agents=8)
