"""Tests evaluations against opponents, while a run trains, with learners and actors as processes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from learner.common.exits import ExitCode
from tests.e2e.books import check_books
from tests.e2e.processes import Processes
from tests.e2e.runs import small, write_run
from tests.e2e.test_tournament import BOARD, SELF_PLAY, actor, train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GAMES = 12


def run_file(folder: Path, **evaluation: Any) -> Path:
    """Writes a run file of tic_tac_toe whose newest policy plays opponents."""
    settings = small(network_settings=BOARD, self_play=SELF_PLAY)
    block = {"interval_steps": 600, "episodes": GAMES, "actors": 1, **evaluation}
    return write_run(folder, {"Board": settings}, evaluation=block)


def test_the_newest_policy_plays_opponents_while_it_trains(processes: Processes) -> None:
    """A random player and a model are played on one of two actors; no step of it is in any book, and the ratings last."""
    first = train(processes)
    model = processes.folder / "rival.onnx"
    model.write_bytes((first / "Board.onnx").read_bytes())
    file = run_file(processes.folder, opponents=["random", str(model), "@last"])
    learner = processes.learner(file, "--run-id", "watched", "--log-format", "json")
    players = [actor(processes, learner.address, name) for name in ("one", "two")]
    learner.wait_for(lambda: len(learner.events("evaluation")) >= 3, "three evaluations", *players)
    (left_out,) = learner.events("opponent_left_out")
    assert left_out["opponent"] == "@last"
    check_books(learner.status())
    for line in learner.events("evaluation"):
        assert line["episodes"] == 2 * GAMES
        assert {"score_against_random", "score_against_rival", "rating"} <= set(line)
    folder = learner.folder
    learner.stop()
    assert learner.wait() == ExitCode.OK, learner.said()
    for line in _evaluations(folder):
        if line["is_complete"]:
            for opponent in line["opponents"]:
                for seat in ("first", "second"):
                    assert sum(opponent[seat].values()) == GAMES / 2
    numbers = {row["key"] for row in _stats(folder)}
    assert {"Evaluation/Rating", "Evaluation/Against random/First Seat Wins"} <= numbers


def _evaluations(folder: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "evaluation"]


def _stats(folder: Path) -> list[dict[str, str]]:
    with (folder / "Board" / "stats.csv").open() as file:
        return list(csv.DictReader(file))
