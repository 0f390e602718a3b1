"""Tests training of a board game: planes, masks and a residual tower."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.processes import processes_in
from tests.e2e.runs import write_run
from tests.tools.gates.environments.tictactoe import TicTacToe

ENV = "tests.tools.gates.environments.tictactoe:TicTacToe"
TARGET = 0.65
HYPERPARAMETERS = {
    "batch_size": 128,
    "buffer_size": 1024,
    "num_epoch": 4,
    "learning_rate": 2.0e-3,
    "learning_rate_schedule": "constant",
    "beta": 1.0e-2,
    "ratio": "joint",
    "shared_critic": True,
}


def random_mean(games: int) -> float:
    """Plays allowed moves at random and returns the mean result."""
    env = TicTacToe()
    total = 0.0
    for seed in range(games):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            env.action_space.seed(seed)
            _, reward, over, _, info = env.step(env.action_space.sample(info["action_mask"].astype("int8")))
            total += reward
    return total / games


def test_tic_tac_toe_is_learned(tmp_path: Path) -> None:
    """Within 40,000 moves the policy wins far more often than chance and makes no invalid move."""
    assert random_mean(200) < 0.3
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": HYPERPARAMETERS,
        "network_settings": {"tower": {"depth": 2, "width": 16}},
        "reward_signals": {"extrinsic": {"gamma": 0.99}},
        "time_horizon": 16,
        "max_steps": 40_000,
        "summary_freq": 5_000,
    }
    run_file = write_run(tmp_path, {"Game": settings}, target_return=TARGET)
    with processes_in(tmp_path) as processes:
        learner = processes.learner(run_file)
        actor = processes.actor(learner.address, ENV, "--num-envs", "8")
        assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
        summary = json.loads((learner.folder / "summary.json").read_text())
    assert summary["stop_reason"] == "target_return", summary["mean_return_100"]
    assert summary["mean_return_100"] >= TARGET
    assert (tmp_path / "results" / "run" / "Game.onnx").exists()


@pytest.mark.parametrize(("moves", "result"), [((0, 1, 2), 1.0), ((0, 0), -1.0)])
def test_a_line_wins_and_a_taken_field_loses(moves: tuple[int, ...], result: float) -> None:
    """Three in a row are 1, and a move to a taken field is -1."""
    env = TicTacToe()
    env.reset(seed=1)
    env._pieces[:] = False
    reward, over = 0.0, False
    for move in moves:
        env._pieces[1] = False  # the opponent's pieces are taken off again
        _, reward, over, *_ = env.step(np.int64(move))
    assert (reward, over) == (result, True)
