"""Tests tournaments with learners and actors as processes."""

from __future__ import annotations

import json
import shutil
import signal
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.shared.exits import ExitCode
from tests.e2e.processes import Child, Processes, processes_in, wait_until
from tests.e2e.runs import small, write_run
from tests.e2e.test_evaluation import digests

SELF_PLAY = {"save_steps": 300, "team_change": 600, "swap_steps": 200}
BOARD = {"hidden_units": 32, "num_layers": 1, "vis_encode_type": "fully_connected"}
SCRIPT = "tests.e2e.test_tournament:first_legal"
GAMES = 160


def first_legal(board: Any, masks: Any) -> Any:
    """Plays the first field that is free; an actor's script."""
    del board
    return masks.argmax(1)


def train(processes: Processes) -> Path:
    """Trains tic_tac_toe for a few updates, with checkpoints; returns the folder of the run."""
    settings = small(
        max_steps=2000, checkpoint_interval=600, keep_checkpoints=9, network_settings=BOARD, self_play=SELF_PLAY
    )
    learner = processes.learner(write_run(processes.folder, {"Board": settings}))
    player = actor(processes, learner.address, "trains")
    assert [learner.wait(), player.wait()] == [0, 0], learner.said() + player.said()
    return learner.folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Trains once for all tests here."""
    with processes_in(tmp_path_factory.mktemp("trained")) as started:
        yield train(started)


@pytest.fixture
def folder(run: Path, processes: Processes) -> Path:
    """Returns a copy of the folder of the trained run."""
    return Path(shutil.copytree(run, processes.folder / "results" / run.name))


def actor(processes: Processes, address: str, name: str, *arguments: str) -> Child:
    """Starts an actor of eight games."""
    options = ["--game", "tic_tac_toe", "--num-envs", "8", "--learner", address, "--name", name]
    return processes.python(name, "-m", "actor_client", "boards", *options, "--log-format", "json", *arguments)


def tournament(processes: Processes, folder: Path, *arguments: str, port: int = 0) -> Child:
    """Starts a tournament."""
    options = ["--address", f"127.0.0.1:{port}", "--log-format", "json", "--games", str(GAMES), "--match-games", "8"]
    name = f"tournament-{len(processes._children)}"
    return processes.python(name, "-m", "learner", "tournament", str(folder), *options, *arguments)


def address_of(child: Child) -> str:
    """Waits until a tournament says where it waits for actors."""
    wait_until(lambda: child.events("waiting_for_actors") or not child.is_running, "it waits", said=child.said)
    return str(child.events("waiting_for_actors")[0]["address"])


def matches(folder: Path) -> list[dict[str, Any]]:
    """Returns the finished matches."""
    path = folder / "tournament" / "games.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [line for line in map(json.loads, lines) if line["kind"] == "match"]


def test_a_tournament_is_killed_and_continues(processes: Processes, folder: Path) -> None:
    """Checkpoints, a script and a random player play on two actors; after a kill, the same games are in the table."""
    before = {name: each for name, each in digests(folder).items() if not name.startswith("tournament")}
    against = ["--against", "random", "--against", f"actor:{SCRIPT}", "--checkpoints", "2", "--interval", "1"]
    killed = tournament(processes, folder, *against, "--actors", "2")
    address = address_of(killed)
    players = [actor(processes, address, "plain"), actor(processes, address, "scripted", "--opponent", SCRIPT)]
    wait_until(lambda: len(matches(folder)) >= 3, "some matches are over", said=killed.said)
    killed.kill()
    kept = matches(folder)
    port = int(address.rpartition(":")[2])
    again = tournament(processes, folder, *against, "--json", port=port)
    assert again.wait() == ExitCode.OK, again.said()
    assert [player.wait() for player in players] == [0, 0], "".join(player.said() for player in players)
    found = matches(folder)
    assert found[: len(kept)] == kept
    assert len({match["number"] for match in found}) == len(found)
    assert sum(match["wins"] + match["draws"] + match["losses"] for match in found) == GAMES
    _check_ratings(json.loads(again.out()), found)
    told = json.loads((folder / "tournament" / "ratings.json").read_text())
    assert told == json.loads(again.out())
    ET.parse(folder / "tournament" / "ratings.svg")  # noqa: S314 - we wrote it
    assert list((folder / "tournament" / "Board" / "games").glob("game-*.txt"))
    for player in players:
        for books in player.events("books"):
            assert books["produced"] == 0, books
    after = {name: each for name, each in digests(folder).items() if not name.startswith("tournament")}
    assert after == before
    _is_over_at_once(processes, folder, against)


def _check_ratings(document: dict[str, Any], found: list[dict[str, Any]]) -> None:
    names = {player["identity"]: player for player in document["players"]}
    assert {player["kind"] for player in names.values()} == {"model", "random", "script"}
    assert (len(names), document["games"], document["is_complete"]) == (4, GAMES, True)
    for identity, player in names.items():
        wins = sum(match["wins"] for match in found if match["first"] == identity)
        losses = sum(match["wins"] for match in found if match["second"] == identity)
        assert (player["first"]["wins"], player["second"]["losses"]) == (wins, losses)
        assert player["games"] > 0
    assert {match["actor"] for match in found} == {"plain", "scripted"}
    assert {match["actor"] for match in found if f"actor:{SCRIPT}" in {match["first"], match["second"]}} == {"scripted"}


def _is_over_at_once(processes: Processes, folder: Path, against: list[str]) -> None:
    """A tournament whose games are all played prints its table without an actor."""
    done = tournament(processes, folder, *against)
    assert done.wait() == ExitCode.OK, done.said()
    assert f"{GAMES} games; the first seat is worth" in done.out()
    assert not done.events("waiting_for_actors")
    (missed,) = done.events("interval_not_reached")
    assert missed["widest_interval"] > missed["interval"] == 1


def _stops_at_once(processes: Processes, folder: Path) -> None:
    """A tournament that is stopped before its first game says that it continues, and nothing of training."""
    stopped = tournament(processes, folder, "--against", "random")
    address_of(stopped)
    stopped.signal(signal.SIGINT)
    assert stopped.wait() == ExitCode.EVALUATION_CUT_SHORT, stopped.said()
    assert stopped.out() == "no game was played\n"
    (line,) = stopped.events("tournament_unfinished")
    assert (line["games"], line["action"]) == (0, "the same command continues it")
    (line,) = stopped.events("stopping")
    assert "update" not in line["action"]
    assert not stopped.events("trainer_started")


def test_mistakes_are_one_line(processes: Processes, folder: Path) -> None:
    """What cannot be played ends the command with one line, before it waits for actors."""
    _stops_at_once(processes, folder)
    model = processes.folder / "no-model.onnx"
    model.write_bytes(b"no model")
    for arguments, code, message in (
        (("--against", "nobody@5"), ExitCode.NOTHING_TO_RESUME, "there is no run 'nobody'"),
        (("--against", "random", "--behavior", "Ball"), ExitCode.USAGE, "--behavior 'Ball' is none of them"),
        (("--checkpoints", "1"), ExitCode.USAGE, "this one has 1 different ones"),
        (("--interval", "0"), ExitCode.USAGE, "'0' is not a number from 1 to 1000"),
        (("--against", str(model)), ExitCode.BAD_CHECKPOINT, "player no-model: "),
    ):
        assert message in tournament(processes, folder, *arguments).fails_with(code)
