"""Tests the client in GDScript in Godot's server."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.actor_client.clients.web.stand_in import serving_in_thread
from tests.e2e.processes import Child, Processes, wait_until
from tests.nightly.clients.conftest import FILES, Training, program
from tests.nightly.clients.physics import compare

LARGE = "--carts=12000"
"""Carts whose reports have about a megabyte."""


def copied(folder: Path) -> Path:
    """Copies the project: the engine writes into its folder, and into that of the user."""
    return Path(shutil.copytree(FILES / "godot", folder, dirs_exist_ok=True))


def play(processes: Processes, address: str, *arguments: str) -> Child:
    """Starts the scene."""
    folder = copied(processes.folder / "godot")
    line = ("--path", str(folder), f"--address={address}", *arguments)
    return processes.program("godot-server", program("godot3-server"), *line, environment={"HOME": str(folder)})


def start(training: Training) -> Child:
    """Starts the scene as a client of a run."""
    return play(training.processes, training.web)


def test_it_trains_to_the_target(training: Training) -> None:
    """The scene trains CartPole to a mean return of 475, and ends with the run."""
    training.is_trained_by(start(training), agents=8)


def test_large_messages_arrive(processes: Processes) -> None:
    """A scene whose messages have a megabyte plays on; the buffers of the engine alone would lose them."""
    with serving_in_thread(max_message_bytes=4 << 20) as (gateway, address):
        client = play(processes, address, LARGE)
        wait_until(lambda: gateway.messages >= 5, "five messages", said=client.said)
        client.end()
    assert len(gateway.conversations) == 1, client.said()


def test_a_message_beyond_the_limit_is_refused_with_the_reason(processes: Processes) -> None:
    """A scene that sends more than the gateway takes ends with its goodbye."""
    with serving_in_thread(max_message_bytes=500_000) as (_, address):
        client = play(processes, address, LARGE)
        assert client.wait() == 1, client.said()
    assert "goodbye after 0 steps: a message of " in client.out()


def test_its_cart_is_that_of_gymnasium(tmp_path: Path) -> None:
    """The cart goes as Gymnasium's CartPole-v1 does, and falls in the same step."""
    folder = copied(tmp_path / "godot")
    shutil.copy(Path(__file__).parent / "physics.gd", folder)
    engine = str(program("godot3-server"))
    compare("env", f"HOME={folder}", engine, "--path", str(folder), "--script", "physics.gd")
