"""Tests training in board games, and play with the exported model, with learners, actors and players as processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actor_client.boards.catalog import make_game
from tests.e2e.processes import Processes, processes_in
from tests.e2e.runs import small, write_run

STEPS = 1_500
SELF_PLAY = {"save_steps": 300, "team_change": 600, "swap_steps": 200}
TOWER = {"tower": {"depth": 1, "width": 4}}
PLANES = {"tower": {"depth": 1, "width": 4, "policy_head": "conv", "value_units": 8}}
PLAY_SECONDS = 100.0


def train(processes: Processes, game: str, network: dict[str, Any], *arguments: str) -> Path:
    """Trains a policy by self-play; returns the exported model."""
    settings = small(max_steps=STEPS, self_play=SELF_PLAY)
    settings["network_settings"] = network
    learner = processes.learner(write_run(processes.folder, {"Board": settings}))
    options = ["--game", game, "--num-envs", "16", "--learner", learner.address, "--log-format", "json"]
    actor = processes.python("actor", "-m", "actor_client", "boards", *options, *arguments)
    codes = [learner.wait(), actor.wait()]
    assert not any(codes), learner.said() + actor.said()
    assert {event["behavior"] for event in actor.events("acting")} == {"Board?team=0", "Board?team=1"}
    for books in actor.events("books"):
        assert books["open"] == books["unacked"] == 0, books
        assert books["acked"]
    stats = (learner.folder / "Board" / "stats.csv").read_text()
    assert "Environment/First Mover Score" in stats
    assert "Self-play/ELO" in stats
    return learner.folder / "Board.onnx"


def play(model: Path, *arguments: str, said: str) -> str:
    """Plays with a model; returns what is printed."""
    command = [sys.executable, "-m", "actor_client", "play", str(model), *arguments]
    found = subprocess.run(command, input=said, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


@pytest.mark.parametrize(
    ("game", "network"),
    [
        ("connect_four", {"hidden_units": 32, "num_layers": 1, "vis_encode_type": "fully_connected"}),
        ("go(board_size=5)", PLANES),
    ],
)
def test_a_board_game_trains_and_is_played(game: str, network: dict[str, Any], tmp_path: Path) -> None:
    """Both teams of a game learn in turn; the model plays a person to the end of a game, and the record is kept."""
    with processes_in(tmp_path) as processes:
        model = train(processes, game, network, "--records", str(tmp_path / "games"), "--records-every", "5")
    assert (tmp_path / "games" / "game-000001.txt").read_text().startswith(f"# game: {game}\n")
    move = next(iter(make_game(game).start().notations()))
    text = play(
        model, "--game", game, "--search", "2", "--records", str(tmp_path / "own"), said=f"hint\n{move}\nresign\n"
    )
    assert "The model plays" in text
    assert "The model wins." in text
    assert len(list((tmp_path / "own").iterdir())) == 1


def test_shogi_trains_and_the_engine_plays(tmp_path: Path) -> None:
    """A tower trains on shogi, with KIF records, and the exported model answers a program for shogi."""
    with processes_in(tmp_path) as processes:
        model = train(
            processes, "shogi", TOWER, "--max-plies", "40", "--records", str(tmp_path / "games"), "--random-plies", "2"
        )
    assert (tmp_path / "games" / "game-000001.kifu").read_text(encoding="utf-8").startswith("#KIF version=2.0")
    lines = ["usi", "isready", "usinewgame", "position startpos moves 7g7f", "go byoyomi 1000", "quit"]
    text = play(model, "--game", "shogi", "--usi", said="".join(f"{line}\n" for line in lines)).splitlines()
    assert text.index("usiok") < text.index("readyok")
    position = make_game("shogi").start()
    position.play(position.read_move("7g7f"))
    assert text[-1].removeprefix("bestmove ") in position.notations()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--game", "shoggi"), 11, "OpenSpiel has no game 'shoggi'; did you mean shogi"),
        (("--game", "kuhn_poker"), 11, "kuhn_poker has chance"),
        ((), 10, "--game is missing: give --game shogi"),
        (("--game", "hex", "--num-envs", "0"), 10, "--num-envs '0'"),
        (("--game", "hex", "--records-every", "5"), 10, "needs a folder for the games: add --records DIR"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    """A mistake in the command line ends the actor before it connects, with one line and its exit code."""
    with processes_in(tmp_path) as processes:
        actor = processes.python("actor", "-m", "actor_client", "boards", "--learner", "127.0.0.1:9", *arguments)
        assert message in actor.fails_with(code)
