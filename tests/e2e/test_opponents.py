"""Tests evaluations against opponents, with learners and actors as processes."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from actor_client.boards.catalog import make_game
from learner.shared.exits import ExitCode
from tests.e2e.books import check_books
from tests.e2e.processes import LearnerProcess, Processes
from tests.e2e.runs import small, write_run
from tests.e2e.test_evaluation import digests
from tests.e2e.test_tournament import BOARD, SCRIPT, SELF_PLAY, actor, train

GAMES = 12


def run_file(folder: Path, max_steps: int = 10**9, **evaluation: Any) -> Path:
    """Writes a run file of tic_tac_toe whose newest policy plays opponents."""
    settings = small(network_settings=BOARD, self_play=SELF_PLAY, max_steps=max_steps)
    block = {"interval_steps": 600, "episodes": GAMES, **evaluation}
    return write_run(folder, {"Board": settings}, evaluation=block)


def test_opponents_are_played_while_a_run_trains(processes: Processes) -> None:
    """A random player and a model play on one of two actors; results by seat and ratings are recorded, and evaluate agrees."""
    trained = train(processes)
    model = processes.folder / "rival.onnx"
    shutil.copy(trained / "Board.onnx", model)
    file = run_file(processes.folder, 10_000, opponents=["random", str(model), "@last"])
    learner = processes.learner(file, run="watched")
    players = [actor(processes, learner.address, name) for name in ("one", "two")]
    assert [child.wait() for child in (learner, *players)] == [0, 0, 0], learner.said()
    (left_out,) = learner.events("opponent_left_out")
    assert left_out["opponent"] == "@last"
    found = [line for line in _events(learner.folder, "evaluation") if line["is_complete"]]
    assert len(found) >= 3
    for line in found:
        assert [opponent["name"] for opponent in line["opponents"]] == ["random", "rival"]
        seats = [sum(opponent[seat].values()) for opponent in line["opponents"] for seat in ("first", "second")]
        assert (seats, line["episodes"]) == ([GAMES / 2] * 4, 2 * GAMES)
    with (learner.folder / "Board" / "stats.csv").open() as stats:
        keys = {row["key"] for row in csv.DictReader(stats)}
    assert {"Evaluation/Rating", "Evaluation/Rating Interval", "Evaluation/Against rival/Second Seat Wins"} <= keys
    _check_games(learner.folder / "Board" / "games", len(found))
    _evaluates(processes, learner)


def _check_games(folder: Path, evaluations: int) -> None:
    """Checks the records: of each evaluation one game against each opponent in each seat, which replays to its result."""
    files = sorted(folder.iterdir())
    assert len(files) >= 4 * evaluations
    names = set()
    for path in files:
        heads, moves = path.read_text().splitlines()[:4], path.read_text().splitlines()[4:]
        assert heads[0] == "# game: tic_tac_toe"
        names |= {line.rpartition(" ")[2] if "step" not in line else "step" for line in heads[1:3]}
        position = make_game("tic_tac_toe").start()
        for move in moves:
            position.play(position.read_move(move))
        assert position.returns is not None
        score = {1.0: "1-0", 0.0: "1/2-1/2", -1.0: "0-1"}[position.returns[0]]
        assert heads[3] == f"# result: {score}"
    assert names == {"step", "random", "rival"}


def _evaluates(processes: Processes, learner: LearnerProcess) -> None:
    """Plays the finished run against a random player, and against the script of the actor that evaluate starts."""
    before = digests(learner.folder)
    command = ["-m", "learner", "evaluate", str(learner.folder), "--against", "random", "--against", f"actor:{SCRIPT}"]
    options = ["--env", "tic_tac_toe", "--boards", "--episodes", "20", "--stochastic", "--json"]
    child = processes.python("evaluate", *command, *options)
    assert child.wait() == ExitCode.OK, child.said()
    (result,) = json.loads(child.out())["behaviors"]
    assert [opponent["name"] for opponent in result["opponents"]] == ["random", f"actor:{SCRIPT}"]
    assert [sum(opponent[seat].values()) for opponent in result["opponents"] for seat in ("first", "second")] == [
        10
    ] * 4
    assert result["rating_error"] > 0
    assert digests(learner.folder) == before


def test_games_of_evaluations_are_in_no_count_of_training(processes: Processes) -> None:
    """One actor plays in evaluations and in training; books, episodes and ghost steps have only the latter.

    After the learner was killed the ratings continue.
    """
    file = run_file(processes.folder, opponents=["random"], interval_steps=256, episodes=200)
    learner = processes.learner(file)
    player = actor(processes, learner.address, "one")
    learner.wait_for(lambda: len(learner.events("evaluation")) >= 4, "four evaluations", player)
    learner.wait_for(lambda: any(each.books for each in learner.status().actors), "a report of the actor", player)
    status, row = learner.status(), learner.behavior("Board")
    # After the status, because a loaded machine may train for a while between the fourth evaluation and that.
    lines = learner.events("evaluation")
    assert all(line["rating_error"] > 0 for line in lines)  # without it, a rating looks exact
    played = sum(line["episodes"] * line["mean_length"] for line in lines)
    taken, ghosts, episodes = row.env_steps_taken, row.numbers["ghost_steps"], row.numbers["episodes"]
    assert played > 4 * 256
    assert 0 < taken <= row.books.received + 256  # what is on the way, of the policy's seat alone
    assert ghosts < 1.5 * taken + 100
    assert episodes <= taken / 2  # no seat has fewer than two moves
    check_books(status)
    (books,) = status.actors[0].books
    assert books.ghost_steps < 1.5 * books.produced_steps + 100  # as of the actor's last report
    port = int(learner.address.rpartition(":")[2])
    rated = _rated(learner)
    assert rated >= 4
    learner.kill()
    again = processes.learner(file, "--resume", port=port)
    again.wait_for(lambda: again.events("evaluation"), "an evaluation", player)
    assert _rated(again) > rated
    check_books(again.status())


def test_mistakes_are_one_line(processes: Processes) -> None:
    """Opponents that cannot play end the command before it listens."""
    for settings, message in (
        ({"opponents": ["gone.onnx"]}, "rollcast.evaluation.opponents: player 'gone.onnx': there is no such file"),
        ({"opponents": [f"actor:{SCRIPT}"]}, "is a script, which only plays in training and in tournaments"),
        ({"opponents": ["random"], "episodes": 1}, "half of the games are in each seat: use 2 or more"),
        ({"opponents": ["random"], "interval_steps": None}, "set rollcast.evaluation.interval_steps"),
    ):
        file = run_file(processes.folder, **settings)
        child = processes.python("refused", "-m", "learner", "serve", str(file), "--address", "127.0.0.1:0")
        assert message in child.fails_with(ExitCode.RUN_FILE)


def _rated(learner: LearnerProcess) -> int:
    """Saves a checkpoint, and returns the number of policies that were rated until then."""
    learner.operator.save_checkpoint()
    state = torch.load(learner.folder / "run_state.pt", weights_only=True)["extra"]["evaluation_opponents"]
    (end,) = (end for name, _, end, *_ in state["rows"] if name == "policy")
    return int(end) - 1


def _events(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == name]
