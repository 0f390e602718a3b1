"""Tests the client in GDScript in Godot's server."""

from __future__ import annotations

import shutil

from tests.e2e.processes import Child
from tests.nightly.clients.conftest import FILES, Training, program


def start(training: Training) -> Child:
    """Starts a copy of the project: the engine writes into its folder, and into that of the user."""
    folder = training.processes.folder / "godot"
    shutil.copytree(FILES / "godot", folder, dirs_exist_ok=True)
    line = ("--path", str(folder), f"--address={training.web}")
    return training.processes.program(
        "godot-server", program("godot3-server"), *line, environment={"HOME": str(folder)}
    )


def test_it_trains_to_the_target(training: Training) -> None:
    """The scene trains CartPole to a mean return of 475, and ends with the run."""
    training.is_trained_by(start(training), agents=8)
