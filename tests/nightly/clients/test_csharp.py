"""Tests the client in C# with mono, and the agents of Unity with stand-ins for Unity's types."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.actor_client.clients.web.stand_in import serving_in_thread
from tests.e2e.processes import Child
from tests.nightly.clients.conftest import FILES, Training, program
from tests.nightly.clients.physics import compare

CLIENT = FILES / "csharp" / "RollcastClient.cs"
CARTPOLE = FILES / "csharp" / "CartPole.cs"
AGENT = FILES / "csharp" / "RollcastAgent.cs"
GAME = Path(__file__).parent / "Game.cs"
PAUSE = Path(__file__).parent / "Pause.cs"
PHYSICS = Path(__file__).parent / "Physics.cs"


def compiled(folder: Path, *arguments: str | Path) -> Path:
    """Returns the program that the compiler makes of some files; a warning is an error."""
    made = folder / "program.exe"
    subprocess.run([program("mcs"), "-langversion:7.2", "-warnaserror", f"-out:{made}", *arguments], check=True)
    return made


def start(training: Training, made: Path, *arguments: str) -> Child:
    """Starts a program in mono."""
    return training.processes.program("mono", program("mono"), str(made), training.web, *arguments)


def test_it_trains_to_the_target(training: Training, tmp_path: Path) -> None:
    """The client trains CartPole to a mean return of 475, and ends with the run."""
    training.is_trained_by(start(training, compiled(tmp_path, CARTPOLE, CLIENT), "16"), agents=16)


def test_a_game_trains_to_the_target(training: Training, tmp_path: Path) -> None:
    """The agents of a game share a connection, train to a mean return of 475, and the game ends with the run."""
    training.is_trained_by(start(training, compiled(tmp_path, "-main:Game", GAME, CARTPOLE, AGENT, CLIENT)), agents=16)


def test_it_answers_pings_while_it_computes(tmp_path: Path) -> None:
    """A simulator that takes longer for a step than the gateway waits for a pong stays connected."""
    made = compiled(tmp_path, "-main:Pause", PAUSE, CARTPOLE, CLIENT)
    with serving_in_thread(ping_seconds=1.0) as (gateway, address):
        subprocess.run([program("mono"), made, address], check=True)
    assert len(gateway.conversations) == 1


def test_its_cart_is_that_of_gymnasium(tmp_path: Path) -> None:
    """The cart goes as Gymnasium's CartPole-v1 does, and falls in the same step."""
    made = compiled(tmp_path, "-main:Physics", PHYSICS, CARTPOLE, CLIENT)
    compare(str(program("mono")), str(made))
